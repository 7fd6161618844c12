"""The command `minivllm-bench offline`: engines in turns on whole batches."""

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from minivllm_bench.engines.dummy_model import write_dummy_model
from minivllm_bench.engines.interface import Engine, EngineSettings
from minivllm_bench.engines.registry import check_engine_name, open_engine
from minivllm_bench.errors import InvalidSetting
from minivllm_bench.machine import read_machine
from minivllm_bench.model_configs import CONFIGS, model_shape, read_model_config
from minivllm_bench.offline import Measurement, measure
from minivllm_bench.placement import DeviceChoice, DTypeChoice, default_threads, resolve_device, resolve_dtype
from minivllm_bench.report import NO_FIGURES, RunSettings, to_json, to_table
from minivllm_bench.report_file import require_folder
from minivllm_bench.speed_limit import least_seconds, measure_ceilings
from minivllm_bench.workloads import Workload, find_workload
from minivllm_scheduler.simulation import MAX_LENGTH_TOKENS, RooflineCost

GPU_MEMORY_SHARE = 0.9
"""Of a GPU's memory, for all engines together; one alone gets what it takes by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineOptions:
    """What to compare; the help of each option says what it is."""

    engines: Annotated[
        str,
        typer.Option(help="Comma-separated: minivllm, hf, hf-cb, vllm, nano-vllm. The first is compared."),
    ] = "minivllm,hf"
    workloads: Annotated[
        str, typer.Option(help="Comma-separated: decode_bN, seed_8x32, prefill_64x1024, offline_256.")
    ] = "decode_b1,decode_b8,decode_b32"
    model: Annotated[str, typer.Option(help="smollm2, a folder, a .gguf file or a hub id.")] = "smollm2"
    model_config: Annotated[
        str | None,
        typer.Option(help=f"Random weights in place of --model: {', '.join(CONFIGS)} or a config.json."),
    ] = None
    dtype: Annotated[DTypeChoice, typer.Option(help="The same for every engine.")] = "auto"
    device: Annotated[DeviceChoice, typer.Option(help="The same for every engine.")] = "auto"
    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy; the same for every engine.")] = 0.0
    input_len: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_LENGTH_TOKENS, help="Prompt tokens, in place of the workload's."),
    ] = None
    output_len: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_LENGTH_TOKENS, help="Output tokens, in place of the workload's."),
    ] = None
    repeats: Annotated[int, typer.Option(min=1, help="Timed runs per engine and workload.")] = 3
    seed: Annotated[int, typer.Option(help="Of the random prompts.")] = 0
    num_threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads of each engine; PyTorch's choice if not given.")
    ] = None
    vllm_python: Annotated[
        Path | None, typer.Option(help="Python of an environment with vLLM, if this one has none.")
    ] = None
    nano_vllm_python: Annotated[Path | None, typer.Option(help="The same for nano-vllm.")] = None
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")] = None


def offline(options: OfflineOptions) -> None:
    """Generate whole batches with each engine in turns and compare tokens per second."""
    names = _engine_names(options.engines)
    chosen = _workloads(options.workloads, options.input_len, options.output_len)
    require_folder(options.json_file)
    machine = read_machine()
    with _model(options) as model:
        settings = _engine_settings(options, model, len(names))
        measurements, start_up_s = _measure(names, chosen, settings, options.repeats, options.seed)
    limits: Mapping[str, float] = NO_FIGURES
    if options.model_config is not None and settings.device == "cuda":
        limits = _limits(chosen, options.model_config, options.seed)
    shared = RunSettings(
        model=f"{options.model_config} with random weights" if settings.dummy_weights else options.model,
        dtype=settings.dtype,
        device=settings.device,
        num_threads=settings.num_threads,
        repeats=options.repeats,
        seed=options.seed,
        temperature=settings.temperature,
        input_len=options.input_len,
        output_len=options.output_len,
    )
    Console().print(to_table(measurements, machine, shared, limits, start_up_s))
    if options.json_file is not None:
        options.json_file.write_text(to_json(measurements, machine, shared, limits, start_up_s))


@contextmanager
def _model(options: OfflineOptions) -> Iterator[str]:
    """The model to load; a shape without weights is a folder for as long as it is needed."""
    if options.model_config is None:
        yield options.model
        return
    config = read_model_config(options.model_config)
    with tempfile.TemporaryDirectory(prefix="minivllm-bench-") as folder:
        write_dummy_model(config, Path(folder))
        yield folder


def _engine_settings(options: OfflineOptions, model: str, num_engines: int) -> EngineSettings:
    """What every engine is built from; on a GPU they share its memory."""
    target, has_weights = resolve_device(options.device), options.model_config is None
    return EngineSettings(
        model=model,
        dtype=resolve_dtype(options.dtype, target, model, has_weights=has_weights),
        device=target,
        num_threads=options.num_threads or default_threads(),
        dummy_weights=not has_weights,
        temperature=options.temperature,
        gpu_memory_share=GPU_MEMORY_SHARE / num_engines,
        vllm_python=options.vllm_python,
        nano_vllm_python=options.nano_vllm_python,
    )


def _engine_names(text: str) -> tuple[str, ...]:
    names = _split(text, "engine")
    for name in names:
        check_engine_name(name)
    return names


def _workloads(text: str, input_len: int | None, output_len: int | None) -> tuple[Workload, ...]:
    names = _split(text, "workload")
    return tuple(find_workload(name).resized(input_len=input_len, output_len=output_len) for name in names)


def _split(text: str, kind: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if not name:
            raise InvalidSetting(f"an empty {kind} name in {text!r}")
        if names.count(name) > 1:
            raise InvalidSetting(f"{kind} {name} is named twice")
    return names


def _limits(workloads: Sequence[Workload], model_config: str, seed: int) -> dict[str, float]:
    """Output tokens per second that the device's own rates allow, by workload."""
    shape = model_shape(model_config)
    cost = RooflineCost(measure_ceilings(), shape)
    limits: dict[str, float] = {}
    for workload in workloads:
        requests = workload.draw(shape.vocab_size, seed=seed, run=1)
        num_tokens = sum(request.output_len for request in requests)
        limits[workload.name] = num_tokens / least_seconds(requests, cost)
    return limits


def _measure(
    names: Sequence[str], workloads: Sequence[Workload], settings: EngineSettings, repeats: int, seed: int
) -> tuple[tuple[Measurement, ...], dict[str, float]]:
    """Open the engines, measure, close them; a status line on stderr says what goes on.

    Returns:
        The measurements, and how many seconds each engine took to be ready, with those imports that were missing.
    """
    console = Console(stderr=True)
    with ExitStack() as opened, console.status("") as status:
        engines: dict[str, Engine] = {}
        start_up_s: dict[str, float] = {}
        for name in names:
            status.update(f"loading {settings.model} into {name}")
            started = time.perf_counter()
            engines[name] = open_engine(name, settings)
            start_up_s[name] = time.perf_counter() - started
            opened.callback(engines[name].close)
        return measure(engines, workloads, repeats=repeats, seed=seed, announce=status.update), start_up_s
