"""When requests arrive.

In an open loop they arrive whether or not the engine keeps up; in a closed loop each user waits for an answer.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from minivllm_scheduler.simulation.errors import InvalidWorkload, require_at_least, require_positive


class ArrivalProcess(Protocol):
    """Times of arrival that do not depend on the engine."""

    def times_s(self, rng: random.Random) -> Iterator[float]:
        """Times in seconds from the start, without end, none before the one that precedes it."""


@dataclass(frozen=True, slots=True)
class PoissonArrivals:
    """Independent arrivals: exponential gaps.

    Attributes:
        rate_per_s: Mean arrivals per second.

    Raises:
        InvalidWorkload: `rate_per_s` is not above 0.
    """

    rate_per_s: float

    def __post_init__(self) -> None:
        require_positive("rate_per_s", self.rate_per_s, InvalidWorkload)

    def times_s(self, rng: random.Random) -> Iterator[float]:
        """Times in seconds from the start."""
        now_s = 0.0
        while True:
            now_s += rng.expovariate(self.rate_per_s)
            yield now_s


@dataclass(frozen=True, slots=True)
class GammaArrivals:
    """Bursty arrivals: gamma-distributed gaps with the given coefficient of variation.

    A gamma variable of shape k and scale s has mean ks and coefficient of variation 1/√k.

    Attributes:
        rate_per_s: Mean arrivals per second.
        cv: Standard deviation of the gaps over their mean: 1 is Poisson, above 1 is bursty, below 1 regular.

    Raises:
        InvalidWorkload: `rate_per_s` or `cv` is not above 0.
    """

    rate_per_s: float
    cv: float

    def __post_init__(self) -> None:
        require_positive("rate_per_s", self.rate_per_s, InvalidWorkload)
        require_positive("cv", self.cv, InvalidWorkload)

    def times_s(self, rng: random.Random) -> Iterator[float]:
        """Times in seconds from the start."""
        shape = self.cv**-2
        scale_s = 1.0 / (self.rate_per_s * shape)
        now_s = 0.0
        while True:
            now_s += rng.gammavariate(shape, scale_s)
            yield now_s


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """A fixed number of users, each with one request under way; all send their first one at time 0.

    Attributes:
        num_users: Requests under way at a time.
        think_time_s: Mean pause of a user between an answer and the next request; exponential.

    Raises:
        InvalidWorkload: `num_users` is below 1 or `think_time_s` below 0.
    """

    num_users: int
    think_time_s: float = 0.0

    def __post_init__(self) -> None:
        require_at_least("num_users", self.num_users, 1, InvalidWorkload)
        require_at_least("think_time_s", self.think_time_s, 0, InvalidWorkload)

    def times_s(self, rng: random.Random) -> Iterator[float]:  # noqa: ARG002 - nothing is random here
        """The first arrival of each user."""
        return iter([0.0] * self.num_users)
