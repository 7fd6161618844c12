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
Swept = int | float | str
"""A value that a sweep gives a setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """One simulation of a sweep, or the only one.

    Attributes:
        swept: Name and value of the settings that sweeps changed, at most two; empty without a sweep.
        report: What the simulation found.
        wall_s: Seconds that it took to simulate.
    """

    swept: Mapping[str, Swept]
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


def to_tables(runs: Sequence[SimulatedRun]) -> tuple[Table, ...]:
    """A table with a line per figure and a column per simulation; of two sweeps, a table per value of the second."""
    by_second: dict[tuple[tuple[str, Swept], ...], list[SimulatedRun]] = {}
    for run in runs:
        by_second.setdefault(tuple(run.swept.items())[1:], []).append(run)
    return tuple(
        _table(group, " ".join(f"{name} {_shown(value)}" for name, value in second))
        for second, group in by_second.items()
    )


def _table(runs: Sequence[SimulatedRun], title: str) -> Table:
    table = Table(title=title or None, box=SIMPLE_HEAD)
    table.add_column(next(iter(runs[0].swept), "simulated"), no_wrap=True)
    for run in runs:
        heading = _shown(next(iter(run.swept.values()), ""))
        table.add_column(heading, justify="right", no_wrap=True)
    for label, show in _LINES:
        table.add_row(label, *(show(run) for run in runs))
    for label, cells in _class_lines(runs):
        table.add_row(label, *cells)
    return table


def _shown(value: Swept) -> str:
    return value if isinstance(value, str) else f"{value:,}"


def _class_lines(runs: Sequence[SimulatedRun]) -> list[tuple[str, list[str]]]:
    """The median and 99th percentile of the TTFT of each class, where there are several."""
    classes = sorted({(each.tenant, each.priority) for run in runs for each in run.report.classes})
    if len(classes) < 2:
        return []
    lines: list[tuple[str, list[str]]] = []
    for tenant, priority in classes:
        found = [_ttft_of_class(run, tenant, priority) for run in runs]
        for percentile in ("p50", "p99"):
            times = [None if ttft is None else getattr(ttft, f"{percentile}_s") for ttft in found]
            label = f"{tenant}, priority {priority}: TTFT {percentile}, ms"
            lines.append((label, [_milliseconds(seconds) for seconds in times]))
    return lines


def _ttft_of_class(run: SimulatedRun, tenant: str, priority: int) -> Distribution | None:
    found = (each for each in run.report.classes if (each.tenant, each.priority) == (tenant, priority))
    return next((each.ttft_s for each in found), None)


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:,.1f}"


def _duration(field: str, percentile: str) -> Callable[[SimulatedRun], str]:
    def show(run: SimulatedRun) -> str:
        distribution: Distribution | None = getattr(run.report, field)
        return _milliseconds(None if distribution is None else getattr(distribution, percentile))

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
    ("discarded tokens", lambda run: f"{run.report.num_discarded_tokens:,}"),
    ("steps", lambda run: f"{run.report.num_steps:,}"),
    ("rows simulated/s", lambda run: f"{run.rows_per_s:,.0f}"),
)
