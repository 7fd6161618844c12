"""Measurements as a table for people and as JSON for programs."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.table import Table

from minivllm_bench.machine import MachineFacts
from minivllm_bench.neighbours import find_neighbours
from minivllm_bench.offline import Measurement
from minivllm_bench.reservations import caption, checkout_reservations, repeat_reservations

SCHEMA = 1
"""Raised when a field of the JSON changes its meaning or goes away."""
NO_FIGURES: Final[Mapping[str, float]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What all rows of a report have in common.

    Attributes:
        model: As given on the command line.
        dtype: Resolved, never "auto".
        device: Resolved, never "auto".
        num_threads: CPU threads of each engine.
        repeats: Timed runs per engine and workload.
        seed: Of the prompts.
        temperature: Of sampling; 0 is greedy.
        input_len: Prompt length that replaced the workloads' own; None if none did.
        output_len: Output length that replaced the workloads' own; None if none did.
    """

    model: str
    dtype: str
    device: str
    num_threads: int
    repeats: int
    seed: int
    temperature: float
    input_len: int | None
    output_len: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One engine on one workload, as it stands in the JSON.

    Attributes:
        output_tokens_per_s: Median over the repeats.
        input_tokens_per_s: Median over the repeats; prompt tokens over the time of the whole run.
        seconds: Median time of a repeat.
        seconds_min, seconds_max: Fastest and slowest repeat.
        spread: (seconds_max - seconds_min) / seconds.
        limit_output_tokens_per_s: What the device's copy and product rates allow; None where they were not measured.
    """

    engine: str
    workload: str
    model: str
    dtype: str
    device: str
    output_tokens_per_s: float
    input_tokens_per_s: float
    seconds: float
    seconds_min: float
    seconds_max: float
    spread: float
    limit_output_tokens_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times faster the first engine of a run is than a peer, on one workload of the same run.

    Attributes:
        ratio: Output tokens per second of `engine` over those of `peer`; above 1, `engine` is faster.
    """

    workload: str
    engine: str
    peer: str
    ratio: float


def make_row(measurement: Measurement, settings: RunSettings, limit: float | None = None) -> Row:
    """The row of one measurement, with the device's limit if it is known."""
    return Row(
        engine=measurement.engine,
        workload=measurement.workload,
        model=settings.model,
        dtype=settings.dtype,
        device=settings.device,
        output_tokens_per_s=measurement.output_tokens_per_s,
        input_tokens_per_s=measurement.input_tokens_per_s,
        seconds=measurement.median_seconds,
        seconds_min=min(measurement.seconds),
        seconds_max=max(measurement.seconds),
        spread=measurement.spread,
        limit_output_tokens_per_s=limit,
    )


def ratios(measurements: Sequence[Measurement]) -> tuple[Ratio, ...]:
    """The first engine of each workload against every other one of that workload."""
    first: dict[str, Measurement] = {}
    found: list[Ratio] = []
    for peer in measurements:
        ours = first.setdefault(peer.workload, peer)
        if ours is not peer:
            ratio = ours.output_tokens_per_s / peer.output_tokens_per_s
            found.append(Ratio(peer.workload, ours.engine, peer.engine, ratio))
    return tuple(found)


def reservations(
    machine: MachineFacts, settings: RunSettings, measurements: Sequence[Measurement]
) -> tuple[str, ...]:
    """Why the figures of a run do not count; empty if they do. Of the peers' sizes nothing is asked."""
    ours = [each for each in measurements if each.engine == measurements[0].engine]
    falls = (pair.reservation for pair in find_neighbours(ours))
    return (
        *checkout_reservations(machine),
        *repeat_reservations(settings.repeats),
        *(fall for fall in falls if fall is not None),
    )


def to_json(
    measurements: Sequence[Measurement],
    machine: MachineFacts,
    settings: RunSettings,
    limits: Mapping[str, float] = NO_FIGURES,
    start_up_s: Mapping[str, float] = NO_FIGURES,
) -> str:
    """The report as an indented JSON object.

    Its fields are schema, machine, settings, reservations, start_up_s, rows, ratios and neighbours.

    Args:
        measurements: The first engine is compared with the others.
        machine: Where they were made.
        settings: What they have in common.
        limits: Output tokens per second by workload.
        start_up_s: Seconds by engine until it was ready.
    """
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "machine": dataclasses.asdict(machine),
        "settings": dataclasses.asdict(settings),
        "reservations": reservations(machine, settings, measurements),
        "start_up_s": dict(start_up_s),
        "rows": [
            dataclasses.asdict(make_row(measurement, settings, limits.get(measurement.workload)))
            for measurement in measurements
        ],
        "ratios": [dataclasses.asdict(ratio) for ratio in ratios(measurements)],
        "neighbours": [dataclasses.asdict(pair) for pair in find_neighbours(measurements)],
    }
    return json.dumps(report, indent=2) + "\n"


def to_table(
    measurements: Sequence[Measurement],
    machine: MachineFacts,
    settings: RunSettings,
    limits: Mapping[str, float] = NO_FIGURES,
    start_up_s: Mapping[str, float] = NO_FIGURES,
) -> Table:
    """The report as a table that fits 80 columns: a section per workload, the ratio beside each peer.

    How many times as fast as this row's engine the first one is stands beside each peer; where the limit of the device
    is known, the last column has the share of it that is reached.
    """
    first = measurements[0].engine
    table = Table(
        title=_title(settings),
        caption=caption(
            machine.summary + _start_up(start_up_s), reservations(machine, settings, measurements)
        ),
        caption_justify="left",
        box=SIMPLE_HEAD,
    )
    for heading in ("workload", "engine"):
        table.add_column(heading, no_wrap=True)
    for heading in ("output\ntok/s", "input\ntok/s", "seconds", "spread", f"{first}\n÷ this"):
        table.add_column(heading, justify="right", no_wrap=True)
    if limits:
        table.add_column("of\nlimit", justify="right", no_wrap=True)
    by_peer = {(ratio.workload, ratio.peer): f"{ratio.ratio:.2f}x" for ratio in ratios(measurements)}
    shown: str | None = None
    for measurement in measurements:
        if shown not in (None, measurement.workload):
            table.add_section()
        table.add_row(
            "" if measurement.workload == shown else measurement.workload,
            measurement.engine,
            f"{measurement.output_tokens_per_s:,.1f}",
            f"{measurement.input_tokens_per_s:,.1f}",
            f"{measurement.median_seconds:.3f}",
            f"{measurement.spread:.1%}",
            by_peer.get((measurement.workload, measurement.engine), ""),
            *_share_of_limit(measurement, limits),
        )
        shown = measurement.workload
    return table


def _share_of_limit(measurement: Measurement, limits: Mapping[str, float]) -> tuple[str, ...]:
    limit = limits.get(measurement.workload)
    return () if limit is None else (f"{measurement.output_tokens_per_s / limit:.0%}",)


def _start_up(start_up_s: Mapping[str, float]) -> str:
    """A line of the caption; none if nothing is known."""
    if not start_up_s:
        return ""
    return "\nready after " + ", ".join(f"{seconds:.1f} s ({name})" for name, seconds in start_up_s.items())


def _title(settings: RunSettings) -> str:
    parts = [settings.model, settings.dtype, settings.device, f"{settings.num_threads} threads"]
    if settings.temperature:
        parts.append(f"temperature {settings.temperature:g}")
    parts += [
        f"{name} {length}"
        for name, length in (("in", settings.input_len), ("out", settings.output_len))
        if length
    ]
    return f"{', '.join(parts)}; median of {settings.repeats}"
