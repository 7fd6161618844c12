"""A soak as tables for people and as JSON for programs."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.table import Table

from minivllm_bench.machine import MachineFacts
from minivllm_bench.soak.checks import Check
from minivllm_bench.soak.memory import MemoryGrowth
from minivllm_bench.soak.server_metrics import COUNTED, PREFIX
from minivllm_bench.soak.traffic import TrafficLog
from minivllm_bench.soak.visitor import End

SCHEMA: Final = 1
"""Raised when a field of the JSON changes its meaning or goes away."""
_WORDS: Final[Mapping[bool | None, str]] = {True: "yes", False: "NO", None: "not seen"}


def to_json(
    log: TrafficLog,
    checks: Sequence[Check],
    metrics: Mapping[str, float],
    machine: MachineFacts,
    settings: Mapping[str, Any],
) -> str:
    """An indented JSON object: schema, machine, settings, visits, faults, metrics, memory and checks."""
    growth = MemoryGrowth.fit(log.samples)
    report = {
        "schema": SCHEMA,
        "machine": dataclasses.asdict(machine),
        "settings": dict(settings),
        "visits": [
            {"kind": kind, "end": end, "count": number} for (kind, end), number in sorted(log.ends.items())
        ],
        "num_faults": log.num_faults,
        "faults": log.faults,
        "metrics": dict(metrics),
        "memory": None if growth is None else dataclasses.asdict(growth),
        "memory_samples": log.samples,
        "checks": [check._asdict() for check in checks],
    }
    return json.dumps(report, indent=2) + "\n"


def to_tables(log: TrafficLog, checks: Sequence[Check], metrics: Mapping[str, float]) -> Iterator[Table]:
    """Visits by kind and end, what the engine did, and the checks."""
    visits = Table(box=SIMPLE_HEAD)
    visits.add_column("visits", no_wrap=True)
    for end in End:
        visits.add_column(end, justify="right", no_wrap=True)
    for kind in dict.fromkeys(kind for kind, _ in log.ends):
        visits.add_row(kind, *(f"{log.ends[kind, end]:,}" for end in End))
    yield visits
    counted = {name: metrics[PREFIX + name] for name in COUNTED if PREFIX + name in metrics}
    if counted:
        engine = Table(box=SIMPLE_HEAD)
        engine.add_column("engine", no_wrap=True)
        engine.add_column("", justify="right", no_wrap=True)
        for name, value in counted.items():
            engine.add_row(name.removesuffix("_total").replace("_", " "), f"{value:,.0f}")
        yield engine
    table = Table(box=SIMPLE_HEAD)
    table.add_column("what must hold", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("")
    for check in checks:
        table.add_row(check.name, _WORDS[check.has_passed], check.detail)
    yield table
