"""How many tokens a prompt or an answer has."""

import math
import random
from dataclasses import dataclass
from typing import Final, Protocol

from minivllm_scheduler.simulation.errors import InvalidWorkload

MAX_LENGTH_TOKENS: Final = 2**24
"""Longest prompt or answer of a workload or trace, in tokens."""


class LengthDistribution(Protocol):
    """Draws lengths."""

    def draw(self, rng: random.Random) -> int:
        """A length of 1 … `MAX_LENGTH_TOKENS` tokens."""


@dataclass(frozen=True, slots=True)
class FixedLength:
    """Always the same length.

    Raises:
        InvalidWorkload: `num_tokens` is not in [1, MAX_LENGTH_TOKENS].
    """

    num_tokens: int

    def __post_init__(self) -> None:
        _check_range(self.num_tokens, self.num_tokens)

    def draw(self, rng: random.Random) -> int:  # noqa: ARG002 - nothing is random here
        """The length."""
        return self.num_tokens


@dataclass(frozen=True, slots=True)
class UniformLength:
    """Every length from `low` to `high`, both included, is equally likely.

    Raises:
        InvalidWorkload: unless 1 <= low <= high <= MAX_LENGTH_TOKENS.
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        _check_range(self.low, self.high)

    def draw(self, rng: random.Random) -> int:
        """A length."""
        return rng.randint(self.low, self.high)


@dataclass(frozen=True, slots=True)
class LogNormalLength:
    """Lengths whose logarithm is normal: many short ones, a few very long ones, as in chat traffic.

    Attributes:
        median: Half of the lengths are below it, before clipping.
        sigma: Standard deviation of the logarithm; 0.5 is narrow, 1.5 has a very long tail.
        low: Shorter draws become this.
        high: Longer draws become this.

    Raises:
        InvalidWorkload: unless 1 <= low <= high <= MAX_LENGTH_TOKENS, median > 0 and sigma >= 0.
    """

    median: float
    sigma: float
    low: int = 1
    high: int = MAX_LENGTH_TOKENS

    def __post_init__(self) -> None:
        _check_range(self.low, self.high)
        if not (0 < self.median < math.inf and 0 <= self.sigma < math.inf):
            raise InvalidWorkload(
                f"a log-normal length needs median > 0 and sigma >= 0, got {self.median} and {self.sigma}"
            )

    def draw(self, rng: random.Random) -> int:
        """A length."""
        exponent = math.log(self.median) + self.sigma * rng.gauss(0.0, 1.0)
        if exponent >= math.log(self.high):
            return self.high
        return max(self.low, round(math.exp(exponent)))


def _check_range(low: int, high: int) -> None:
    if not 1 <= low <= high <= MAX_LENGTH_TOKENS:
        raise InvalidWorkload(
            f"a length must lie in [1, {MAX_LENGTH_TOKENS}] with low <= high, got {low} to {high}"
        )
