"""The command `minivllm-bench kernels`: every operation of a decoder against the device's own limits."""

import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from minivllm_bench.engines.dummy_model import write_dummy_model
from minivllm_bench.errors import InvalidSetting
from minivllm_bench.machine import MachineFacts, read_machine
from minivllm_bench.model_configs import CONFIGS, read_model_config
from minivllm_bench.placement import DTypeChoice, resolve_device, resolve_dtype
from minivllm_bench.report_file import require_folder
from minivllm_bench.reservations import caption, checkout_reservations
from minivllm_bench.sizes import parse_sizes
from minivllm_bench.speed_limit import measure_ceilings
from minivllm_scheduler.simulation import DeviceSheet

if TYPE_CHECKING:
    from minivllm_bench.kernel_bench import KernelCost

SCHEMA: Final = 2
"""Raised when a field of the JSON changes its meaning or goes away."""


def kernels(
    *,
    model_config: Annotated[
        str, typer.Option(help=f"Shape: {', '.join(CONFIGS)} or a config.json.")
    ] = "tinyllama-1.1b",
    rows: Annotated[str, typer.Option(help="Comma-separated numbers of tokens, or requests.")] = "1,8,64,256",
    contexts: Annotated[
        str, typer.Option(help="Comma-separated lengths of contexts and prompts.")
    ] = "256,1024,2048",
    dtype: Annotated[DTypeChoice, typer.Option(help="Of weights, activations and KV cache.")] = "auto",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")] = None,
) -> None:
    """Time products, norms and attention of a model's shape on a CUDA device: microseconds, and share of the limit."""
    num_rows, lengths = parse_sizes("--rows", rows), parse_sizes("--contexts", contexts)
    require_folder(json_file)
    config = read_model_config(model_config)
    if resolve_device("auto") != "cuda":
        raise InvalidSetting("kernels needs a CUDA device, and this machine has none that PyTorch can use")
    import torch

    from minivllm_bench.kernel_bench import measure_kernels
    from minivllm_runtime.loader.hf_config import read_hf_config

    machine = read_machine()
    with tempfile.TemporaryDirectory(prefix="minivllm-bench-") as folder:
        write_dummy_model(config, Path(folder))
        shape = read_hf_config(Path(folder))
        name = resolve_dtype(dtype, "cuda", folder, has_weights=False)
    ceilings = measure_ceilings()
    costs = measure_kernels(shape, getattr(torch, name), ceilings, rows=num_rows, contexts=lengths)
    Console().print(to_table(costs, ceilings, machine, f"{model_config}, {name}"))
    if json_file is not None:
        json_file.write_text(to_json(costs, ceilings, machine, {"model": model_config, "dtype": name}))


def to_table(
    costs: Sequence["KernelCost"], ceilings: DeviceSheet, machine: MachineFacts, title: str
) -> Table:
    """The operations as a table that fits 90 columns: time, rates and share of the limit."""
    rates = f"{ceilings.bytes_per_s / 1e12:.2f} TB/s copied, {ceilings.flops_per_s / 1e12:.0f} TFLOP/s"
    table = Table(
        title=title,
        caption=caption(f"{machine.summary}\n{rates}", checkout_reservations(machine)),
        caption_justify="left",
        box=SIMPLE_HEAD,
    )
    table.add_column("operation", no_wrap=True)
    for heading in ("µs", "TB/s", "TFLOP/s", "of limit"):
        table.add_column(heading, justify="right", no_wrap=True)
    for cost in costs:
        table.add_row(
            cost.operation,
            f"{cost.seconds * 1e6:.1f}",
            f"{cost.moved_bytes / cost.seconds / 1e12:.2f}",
            f"{cost.flops / cost.seconds / 1e12:.0f}",
            f"{cost.least_seconds / cost.seconds:.0%}",
        )
    return table


def to_json(
    costs: Sequence["KernelCost"], ceilings: DeviceSheet, machine: MachineFacts, settings: Mapping[str, str]
) -> str:
    """The figures as an indented JSON object: schema, machine, settings, reservations, ceilings, rows."""
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "machine": dataclasses.asdict(machine),
        "settings": dict(settings),
        "reservations": checkout_reservations(machine),
        "ceilings": {"bytes_per_s": ceilings.bytes_per_s, "flops_per_s": ceilings.flops_per_s},
        "rows": [dataclasses.asdict(cost) for cost in costs],
    }
    return json.dumps(report, indent=2) + "\n"
