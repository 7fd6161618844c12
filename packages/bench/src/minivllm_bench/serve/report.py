"""Figures of servers as a table for people and as JSON for programs."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.table import Table

from minivllm_bench.machine import MachineFacts
from minivllm_bench.reservations import caption, checkout_reservations, repeat_reservations
from minivllm_bench.serve.figures import Percentiles, ServeFigures

SCHEMA: Final = 1
"""Raised when a field of the JSON changes its meaning or goes away."""
BUSY_CLIENT: Final = 0.7
"""Share of a core from which on a client process may hold the server up."""


@dataclass(frozen=True, slots=True)
class ServeRatio:
    """How many times as fast the first server of a run is as a peer, under the same load.

    Attributes:
        ratio: Output tokens per second of `server` over those of `peer`.
    """

    load: str
    server: str
    peer: str
    ratio: float


def ratios(figures: Sequence[ServeFigures]) -> tuple[ServeRatio, ...]:
    """The first server of each load against every other one that answered anything."""
    first: dict[str, ServeFigures] = {}
    found: list[ServeRatio] = []
    for peer in figures:
        ours = first.setdefault(peer.load, peer)
        if ours is not peer and peer.output_tokens_per_s:
            ratio = ours.output_tokens_per_s / peer.output_tokens_per_s
            found.append(ServeRatio(peer.load, ours.server, peer.server, ratio))
    return tuple(found)


def reservations(figures: Sequence[ServeFigures], machine: MachineFacts, repeats: int) -> tuple[str, ...]:
    """Why the figures do not count; empty if they do."""
    found = [*checkout_reservations(machine), *repeat_reservations(repeats)]
    for row in figures:
        where = f"{row.server}, {row.load}"
        if row.errors:
            found.append(f"{where}: {sum(row.errors.values())} of {row.num_requests} requests failed")
        if row.client_cpu_share > BUSY_CLIENT:
            found.append(
                f"{where}: a client process was {row.client_cpu_share:.0%} busy; give it more --processes"
            )
    return tuple(found)


def to_json(
    figures: Sequence[ServeFigures], machine: MachineFacts, settings: Mapping[str, Any], repeats: int
) -> str:
    """The report as an indented JSON object: schema, machine, settings, reservations, rows, ratios."""
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "machine": dataclasses.asdict(machine),
        "settings": dict(settings),
        "reservations": reservations(figures, machine, repeats),
        "rows": [dataclasses.asdict(row) for row in figures],
        "ratios": [dataclasses.asdict(ratio) for ratio in ratios(figures)],
    }
    return json.dumps(report, indent=2) + "\n"


def to_table(figures: Sequence[ServeFigures], machine: MachineFacts, title: str, repeats: int) -> Table:
    """The report as a table: a section per load; how many times as fast the first server is, beside each peer."""
    table = Table(
        title=title,
        caption=caption(_where(figures, machine), reservations(figures, machine, repeats)),
        caption_justify="left",
        box=SIMPLE_HEAD,
    )
    for heading in ("load", "server"):
        table.add_column(heading, no_wrap=True)
    headings = ["tok/s", "req/s", "TTFT\np50 ms", "\np95", "\np99", "TPOT\np50 ms", "ITL\np99 ms", "failed"]
    if len({row.server for row in figures}) > 1:
        headings.append(f"{figures[0].server}\n÷ this")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    by_peer = {(ratio.load, ratio.peer): f"{ratio.ratio:.2f}x" for ratio in ratios(figures)}
    shown: str | None = None
    for row in figures:
        if shown not in (None, row.load):
            table.add_section()
        cells = [*_cells(row), by_peer.get((row.load, row.server), "")][: len(headings)]
        table.add_row("" if row.load == shown else row.load, row.server, *cells)
        shown = row.load
    return table


def _cells(row: ServeFigures) -> tuple[str, ...]:
    return (
        f"{row.output_tokens_per_s:,.1f}",
        f"{row.requests_per_s:,.2f}",
        _ms(row.ttft, "p50_ms"),
        _ms(row.ttft, "p95_ms"),
        _ms(row.ttft, "p99_ms"),
        _ms(row.tpot, "p50_ms"),
        _ms(row.itl, "p99_ms"),
        f"{sum(row.errors.values()):,}",
    )


def _ms(percentiles: Percentiles | None, name: str) -> str:
    return "-" if percentiles is None else f"{getattr(percentiles, name):,.1f}"


def _where(figures: Sequence[ServeFigures], machine: MachineFacts) -> str:
    """The machine, how busy the client was, and what failed: a line each."""
    busiest = max(figures, key=lambda row: row.client_cpu_share)
    client = (
        f"client: {busiest.client_us_per_chunk:.0f} µs a chunk, busy {busiest.client_cpu_share:.0%} at most"
    )
    failures = [
        f"{row.server}, {row.load}: {count} failed: {error}"
        for row in figures
        for error, count in row.errors.items()
    ]
    return "\n".join([machine.summary, client, *failures])
