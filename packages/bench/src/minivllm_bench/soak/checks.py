"""What must hold at the end of a soak."""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from minivllm_bench.serve.streamed_answer import HTTP_OK
from minivllm_bench.soak.cases import Case
from minivllm_bench.soak.memory import MemoryGrowth
from minivllm_bench.soak.server_metrics import not_at_rest, parse_metrics
from minivllm_bench.soak.traffic import TrafficLog
from minivllm_bench.soak.visitor import End, Visitor

MOST_GROWTH_BYTES = 16 << 20
"""More than that in the later half of a soak is a leak."""
_MIB = 1 << 20
_REST_WITHIN_S = 5.0
_POLL_S = 0.1
_UNCLEAN = re.compile(
    r"\b(WARNING|ERROR|CRITICAL)\b|\"level\": \"(warning|error|critical)\"|Traceback|Exception|Fatal Python error"
)
_MAX_SHOWN = 3


class Check(NamedTuple):
    """One thing that was checked.

    Attributes:
        name: What must hold.
        has_passed: Whether it does; None where it could not be seen.
        detail: What was found.
    """

    name: str
    has_passed: bool | None
    detail: str


def check_traffic(log: TrafficLog) -> Check:
    """Every visit ended as it must."""
    detail = f"{log.count(End.ANSWERED):,} answers as expected"
    if log.num_faults:
        detail = f"{log.num_faults} faults, the first: {log.faults[0]}"
    return Check("no answer lost, crossed or changed", not log.num_faults, detail)


def check_memory(growth: MemoryGrowth | None) -> Check:
    """The server's memory is flat."""
    name = "memory is flat"
    if growth is None:
        return Check(name, None, "the server's memory was not seen")
    detail = (
        f"{growth.first_bytes / _MIB:,.0f} MiB to {growth.last_bytes / _MIB:,.0f} MiB; later half "
        f"{growth.bytes_per_s * 60 / _MIB:+.2f} MiB/min, {growth.grown_bytes / _MIB:+.1f} MiB in all"
    )
    return Check(name, growth.grown_bytes <= MOST_GROWTH_BYTES, detail)


async def check_rest(visitor: Visitor) -> tuple[Check, Mapping[str, float]]:
    """The pool is whole and gauges are at rest, within seconds after the last request; and the metrics then."""
    name = "pool is whole, gauges are at rest"
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + _REST_WITHIN_S
    while True:
        try:
            page = await visitor.get("/metrics")
        except (OSError, ValueError) as error:
            return Check(name, False, f"{type(error).__name__}: {error}"), {}
        if page.status != HTTP_OK:
            return Check(name, None, f"GET /metrics gives status {page.status}"), {}
        metrics = parse_metrics(page.body.decode())
        restless = not_at_rest(metrics)
        if not restless or loop.time() > give_up_s:
            detail = ", ".join(f"{gauge} {value:g}" for gauge, value in restless.items())
            return Check(name, not restless, detail or "all zero"), metrics
        await asyncio.sleep(_POLL_S)


async def check_answers_again(visitor: Visitor, cases: Sequence[Case]) -> Check:
    """Each case alone gives what it gave before the traffic."""
    faults = [visit.fault for case in cases if (visit := await visitor.ask(case)).end is not End.ANSWERED]
    detail = (
        f"{len(faults)} of {len(cases)} differ, the first: {faults[0]}" if faults else f"{len(cases)} of them"
    )
    return Check("solo answers are those of the beginning", not faults, detail)


def check_log(log: Path | None) -> Check:
    """The server complained about nothing."""
    name = "log is clean"
    if log is None:
        return Check(name, None, "the log was not seen")
    lines = log.read_text(errors="replace").splitlines()
    unclean = list(_unclean(lines))
    detail = f"{len(lines):,} lines"
    if unclean:
        detail = f"{len(unclean)} of {len(lines):,} lines, such as {'; '.join(unclean[:_MAX_SHOWN])}"
    return Check(name, not unclean, detail)


def _unclean(lines: Sequence[str]) -> Iterator[str]:
    return (line for line in lines if _UNCLEAN.search(line))


def check_exit(status: int | None) -> Check:
    """The server ended well when it was asked to."""
    name = "server ends with status 0"
    if status is None:
        return Check(name, None, "the server was not started here")
    return Check(name, status == 0, f"status {status}")
