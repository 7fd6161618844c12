"""Resident memory of a server and its children over time, and whether it grows."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_KIB = 1024
_SHORTEST_SPAN_S = 20.0
"""What grows in less time may be a server that gets warm."""


class MemorySample(NamedTuple):
    """Resident bytes at a time in seconds."""

    time_s: float
    resident_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryGrowth:
    """A straight line through the later half of the samples, when caches and allocators are warm.

    Attributes:
        first_bytes, last_bytes: Of all samples.
        bytes_per_s: Slope of the line (least squares).
        grown_bytes: The slope over the time it was fitted to.
    """

    first_bytes: int
    last_bytes: int
    bytes_per_s: float
    grown_bytes: float

    @classmethod
    def fit(cls, samples: Sequence[MemorySample]) -> "MemoryGrowth | None":
        """The growth in some samples, in order of time; None where the later half of them is too short a time."""
        later = samples[len(samples) // 2 :]
        if not later or (span_s := later[-1].time_s - later[0].time_s) < _SHORTEST_SPAN_S:
            return None
        slope = statistics.linear_regression(*zip(*later, strict=True)).slope
        return cls(samples[0].resident_bytes, samples[-1].resident_bytes, slope, slope * span_s)


def resident_bytes(pid: int) -> int | None:
    """Resident memory of a process and all its descendants; None without /proc or once it ended.

    Pages that processes share count for each.
    """
    try:
        return sum(_resident_bytes(each) for each in _tree(pid))
    except OSError:
        return None


def _tree(pid: int) -> Iterator[int]:
    """A process and its descendants."""
    yield pid
    for task in (_PROC / str(pid) / "task").iterdir():
        for child in (task / "children").read_text().split():
            yield from _tree(int(child))


def _resident_bytes(pid: int) -> int:
    for line in (_PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * _KIB
    return 0
