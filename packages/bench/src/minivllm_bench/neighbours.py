"""Sizes next to each other: an engine that is tuned to the sizes of a benchmark falls off just beside them.

One request more or less should hardly matter. So `decode_b(N-1)` must serve each of its requests about as fast as
`decode_bN`, and `decode_bN` must make about as many tokens in all as `decode_b(N-1)`, or neither figure counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from minivllm_bench.offline import Measurement
from minivllm_bench.workloads import decode_batch_size

LARGEST_FALL = 0.1


@dataclass(frozen=True, slots=True)
class Neighbours:
    """`decode_bN` and `decode_b(N-1)` of one engine in one run.

    Attributes:
        engine: Name of the engine.
        size: N, at least 2.
        tokens_per_s: Output tokens per second of `decode_bN`, median over the repeats.
        smaller_tokens_per_s: The same of `decode_b(N-1)`.
    """

    engine: str
    size: int
    tokens_per_s: float
    smaller_tokens_per_s: float

    @property
    def reservation(self) -> str | None:
        """Why their figures do not count; None if they do."""
        size, name = self.size, f"decode_b{self.size}"
        smaller, smaller_name = self.smaller_tokens_per_s, f"decode_b{self.size - 1}"
        each, each_of_smaller = self.tokens_per_s / size, smaller / (size - 1)
        return _fall(
            f"{self.engine} makes {each_of_smaller:.1f} tokens/s for each request of {smaller_name}, "
            f"and {each:.1f} of {name}",
            each_of_smaller / each,
        ) or _fall(
            f"{self.engine} makes {self.tokens_per_s:.1f} tokens/s with {name}, "
            f"and {smaller:.1f} with {smaller_name}",
            self.tokens_per_s / smaller,
        )


def find_neighbours(measurements: Sequence[Measurement]) -> tuple[Neighbours, ...]:
    """Every pair of neighbouring sizes that an engine was measured on, in the order of the larger ones."""
    speeds = {
        (measurement.engine, size): measurement.output_tokens_per_s
        for measurement in measurements
        if (size := decode_batch_size(measurement.workload)) is not None
    }
    return tuple(
        Neighbours(engine, size, speed, speeds[engine, size - 1])
        for (engine, size), speed in speeds.items()
        if (engine, size - 1) in speeds
    )


def _fall(figures: str, ratio: float) -> str | None:
    """`figures` with how far the first is behind the second, if that is too far."""
    if ratio >= 1 - LARGEST_FALL:
        return None
    return f"{figures}: {1 - ratio:.0%} less, at most {LARGEST_FALL:.0%} is allowed"
