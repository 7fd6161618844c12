"""A workload that was served for real, beside its simulation."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table

from minivllm_bench.live.live_report import LiveReport
from minivllm_bench.machine import MachineFacts
from minivllm_bench.reservations import caption, checkout_reservations
from minivllm_scheduler.simulation import SimulationReport

SCHEMA: Final = 1
"""Raised when a field of the JSON changes its meaning or goes away."""


class ComparedFigure(NamedTuple):
    """One figure, measured and simulated.

    Attributes:
        name: What it is, with its unit.
        measured, simulated: Its values.
    """

    name: str
    measured: float
    simulated: float

    @property
    def difference(self) -> float:
        """(simulated - measured) / measured."""
        return self.simulated / self.measured - 1


def compare(live: LiveReport, simulated: SimulationReport) -> tuple[ComparedFigure, ...]:
    """Throughput, then median and 95th percentile of what both know of requests."""
    figures = [ComparedFigure("output tokens/s", live.output_tokens_per_s, simulated.output_tokens_per_s)]
    for label, real, virtual in (
        ("TTFT", live.ttft_s, simulated.ttft_s),
        ("TPOT", live.tpot_s, simulated.tpot_s),
        ("latency", live.latency_s, simulated.latency_s),
    ):
        if real is not None and virtual is not None:
            figures.append(ComparedFigure(f"{label} p50, ms", real.p50_s * 1000, virtual.p50_s * 1000))
            figures.append(ComparedFigure(f"{label} p95, ms", real.p95_s * 1000, virtual.p95_s * 1000))
    return tuple(figures)


def to_table(figures: tuple[ComparedFigure, ...], machine: MachineFacts) -> Table:
    """A line per figure."""
    table = Table(
        caption=caption(machine.summary, checkout_reservations(machine)),
        caption_justify="left",
        box=SIMPLE_HEAD,
    )
    table.add_column("figure", no_wrap=True)
    for heading in ("measured", "simulated", "difference"):
        table.add_column(heading, justify="right", no_wrap=True)
    for figure in figures:
        table.add_row(
            figure.name, f"{figure.measured:,.1f}", f"{figure.simulated:,.1f}", f"{figure.difference:+.1%}"
        )
    return table


def to_json(
    figures: tuple[ComparedFigure, ...], settings: Mapping[str, object], machine: MachineFacts
) -> str:
    """An indented JSON object: schema, machine, settings, reservations, and `rows`, one per figure."""
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "machine": dataclasses.asdict(machine),
        "settings": dict(settings),
        "reservations": checkout_reservations(machine),
        "rows": [{**figure._asdict(), "difference": figure.difference} for figure in figures],
    }
    return json.dumps(report, indent=2) + "\n"
