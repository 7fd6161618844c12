"""The command `minivllm-bench scheduler`: figures of the scheduler and the allocator, as tables and as JSON."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from minivllm_bench.machine import MachineFacts, read_machine
from minivllm_bench.report_file import require_folder
from minivllm_bench.reservations import caption, checkout_reservations
from minivllm_bench.scheduler_bench import (
    LARGE_POOL_BLOCKS,
    CallCost,
    StepCost,
    bytes_per_block,
    measure_calls,
    measure_steps,
)
from minivllm_bench.sizes import parse_sizes

SCHEMA: Final = 1
"""Raised when a field of the JSON changes its meaning or goes away."""
POOL_ROWS_RUNNING: Final = 256
"""Requests in the steps that are compared between a small and a large pool."""
SMALL_POOL_BLOCKS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerFigures:
    """All that one run measured.

    Attributes:
        steps: One row per number of running requests, in pools that they fill.
        large_pool: The same step in a pool of a million blocks.
        calls: Calls of the allocator, in a small pool and in one of a million blocks.
        bytes_per_block: Memory of the allocator per block, at a million blocks.
    """

    steps: tuple[StepCost, ...]
    large_pool: StepCost
    calls: tuple[CallCost, ...]
    bytes_per_block: float


def scheduler(
    *,
    running: Annotated[
        str, typer.Option(help="Comma-separated numbers of running requests.")
    ] = "1,4,16,64,256,1024,4096",
    steps: Annotated[int, typer.Option(min=1, help="Timed steps, and timed calls of each kind.")] = 256,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")] = None,
) -> None:
    """Time the scheduler and the block allocator alone: microseconds per step and call, bytes per block."""
    sizes = parse_sizes("--running", running)
    require_folder(json_file)
    machine = read_machine()
    figures = _measure(sizes, steps)
    console = Console()
    for table in to_tables(figures, machine, steps):
        console.print(table)
    if json_file is not None:
        json_file.write_text(to_json(figures, machine, steps))


def to_json(figures: SchedulerFigures, machine: MachineFacts, num_steps: int) -> str:
    """The figures as an indented JSON object: schema, machine, settings, reservations, rows, and the rest."""
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "machine": dataclasses.asdict(machine),
        "settings": {"steps": num_steps},
        "reservations": checkout_reservations(machine),
        "rows": [dataclasses.asdict(cost) for cost in figures.steps],
        "large_pool": dataclasses.asdict(figures.large_pool),
        "calls": [dataclasses.asdict(cost) for cost in figures.calls],
        "bytes_per_block": figures.bytes_per_block,
    }
    return json.dumps(report, indent=2) + "\n"


def to_tables(figures: SchedulerFigures, machine: MachineFacts, num_steps: int) -> tuple[Table, Table]:
    """The figures as two tables that fit 80 columns: steps, then calls."""
    where = f"{machine.cpu_model}, Python {machine.python}"
    steps = _table(
        f"Decode steps, µs of processor time; {num_steps} steps each",
        caption(
            f"Last column: schedule and update, medians, per request.\n{where}",
            checkout_reservations(machine),
        ),
        ("running", "blocks", "schedule\np50", "\np99", "update\np50", "\np99", "per\nrequest"),
    )
    for cost in (*figures.steps, figures.large_pool):
        times = (cost.schedule_us, cost.schedule_p99_us, cost.update_us, cost.update_p99_us)
        per_request = (cost.schedule_us + cost.update_us) / cost.running
        steps.add_row(
            str(cost.running),
            f"{cost.num_blocks:,}",
            *(f"{time:,.1f}" for time in times),
            f"{per_request:.2f}",
        )
    calls = _table(
        "Allocator calls, µs of processor time; a prompt of 128 tokens",
        f"{figures.bytes_per_block:.0f} bytes per block in a pool of {LARGE_POOL_BLOCKS:,}.",
        ("call", "blocks", "p50", "p99"),
    )
    for call in figures.calls:
        calls.add_row(call.call, f"{call.num_blocks:,}", f"{call.us:,.1f}", f"{call.p99_us:,.1f}")
    return steps, calls


def _measure(sizes: Sequence[int], num_steps: int) -> SchedulerFigures:
    """Measures everything; a status line on stderr says what goes on."""
    with Console(stderr=True).status("") as status:
        steps: list[StepCost] = []
        for size in sizes:
            status.update(f"steps of {size} running requests")
            steps.append(measure_steps(size, num_steps))
        status.update(f"a pool of {LARGE_POOL_BLOCKS:,} blocks")
        return SchedulerFigures(
            steps=tuple(steps),
            large_pool=measure_steps(POOL_ROWS_RUNNING, num_steps, LARGE_POOL_BLOCKS),
            calls=measure_calls(num_steps, SMALL_POOL_BLOCKS) + measure_calls(num_steps, LARGE_POOL_BLOCKS),
            bytes_per_block=bytes_per_block(LARGE_POOL_BLOCKS),
        )


def _table(title: str, caption: str, headings: Sequence[str]) -> Table:
    table = Table(title=title, caption=caption, caption_justify="left", box=SIMPLE_HEAD)
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="left" if index == 0 else "right", no_wrap=True)
    return table
