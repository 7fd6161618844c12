"""Results of simulations as a table for people and as JSON for programs."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.table import Table

from minivllm_scheduler.simulation import Distribution, SimulationReport

SCHEMA: Final = 1
"""Raised when a field of the JSON changes its meaning or goes away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """One simulation of a sweep, or the only one.

    Attributes:
        swept: Name and value of the setting that the sweep changed; empty without a sweep.
        report: What the simulation found.
        wall_s: Seconds that it took to simulate.
    """

    swept: Mapping[str, int]
    report: SimulationReport
    wall_s: float

    @property
    def rows_per_s(self) -> float:
        """Scheduled rows simulated per second: the simulator's speed."""
        return self.report.num_rows / self.wall_s


def to_json(runs: Sequence[SimulatedRun], settings: Mapping[str, object]) -> str:
    """An indented JSON object: schema, settings, and `rows`, one per simulation."""
    rows: list[dict[str, Any]] = [
        {**run.swept, **dataclasses.asdict(run.report), "wall_s": run.wall_s, "rows_per_s": run.rows_per_s}
        for run in runs
    ]
    return json.dumps({"schema": SCHEMA, "settings": dict(settings), "rows": rows}, indent=2) + "\n"


def to_table(runs: Sequence[SimulatedRun]) -> Table:
    """A line per figure, a column per simulation."""
    table = Table(box=SIMPLE_HEAD)
    names = {name for run in runs for name in run.swept}
    table.add_column(" ".join(names) or "simulated", no_wrap=True)
    for run in runs:
        table.add_column(
            " ".join(f"{value:,}" for value in run.swept.values()), justify="right", no_wrap=True
        )
    for label, show in _LINES:
        table.add_row(label, *(show(run) for run in runs))
    return table


def _duration(field: str, percentile: str) -> Callable[[SimulatedRun], str]:
    def show(run: SimulatedRun) -> str:
        distribution: Distribution | None = getattr(run.report, field)
        return "-" if distribution is None else f"{getattr(distribution, percentile) * 1000:,.1f}"

    return show


_LINES: Final[tuple[tuple[str, Callable[[SimulatedRun], str]], ...]] = (
    ("requests finished", lambda run: f"{run.report.num_finished:,}"),
    ("requests refused", lambda run: f"{run.report.num_refused:,}"),
    ("duration, s", lambda run: f"{run.report.duration_s:,.1f}"),
    ("requests/s", lambda run: f"{run.report.requests_per_s:,.2f}"),
    ("output tokens/s", lambda run: f"{run.report.output_tokens_per_s:,.1f}"),
    *(
        (f"{name} {percentile}, ms", _duration(field, f"{percentile}_s"))
        for name, field in (
            ("TTFT", "ttft_s"),
            ("TPOT", "tpot_s"),
            ("queue", "queue_s"),
            ("latency", "latency_s"),
        )
        for percentile in ("p50", "p95", "p99")
    ),
    ("KV use, mean", lambda run: f"{run.report.kv_use_mean:.1%}"),
    ("KV use, peak", lambda run: f"{run.report.kv_use_peak:.1%}"),
    ("cached prompt tokens", lambda run: f"{run.report.num_cached_tokens:,}"),
    ("preemptions", lambda run: f"{run.report.num_preemptions:,}"),
    ("recomputed tokens", lambda run: f"{run.report.num_recomputed_tokens:,}"),
    ("steps", lambda run: f"{run.report.num_steps:,}"),
    ("rows simulated/s", lambda run: f"{run.rows_per_s:,.0f}"),
)
