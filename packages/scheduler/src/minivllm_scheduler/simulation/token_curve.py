"""TokenCurve: seconds as a function of a step's tokens, straight between the points where they are known."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from minivllm_scheduler.simulation.errors import InvalidCost, require_at_least


@dataclass(frozen=True, slots=True)
class TokenCurve:
    """A line through points; flat before the first, beyond the last in proportion to the tokens.

    A matrix product's time is no straight line in its rows: it rests on the memory first, then on the arithmetic,
    with steps where the library takes another kernel.

    Attributes:
        knots: Tokens of a step, ascending, from 1 on.
        seconds: Time at each knot.

    Raises:
        InvalidCost: There is no knot, they do not ascend, there is not one time for each, or one is negative.
    """

    knots: tuple[int, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.knots) != len(self.seconds) or not self.knots:
            raise InvalidCost(
                f"a token curve has {len(self.knots)} knots and {len(self.seconds)} times, it needs "
                "one time for each of at least 1 knot"
            )
        if self.knots[0] < 1 or any(b <= a for a, b in zip(self.knots, self.knots[1:], strict=False)):
            raise InvalidCost(
                f"the knots of a token curve are {self.knots}, they must ascend from at least 1"
            )
        for knot, value in zip(self.knots, self.seconds, strict=True):
            require_at_least(f"the time at {knot} tokens", value, 0, InvalidCost)

    def at(self, num_tokens: int) -> float:
        """Seconds of a step of so many tokens."""
        return sum(share * self.seconds[index] for index, share in knot_shares(self.knots, num_tokens))


def knot_shares(knots: Sequence[int], num_tokens: int) -> tuple[tuple[int, float], ...]:
    """Index and weight of the knots that `num_tokens` lies at or between: the curve there is their weighted sum."""
    above = bisect_right(knots, num_tokens)
    if above == 0:
        return ((0, 1.0),)
    if above == len(knots):
        return ((above - 1, num_tokens / knots[-1]),)
    share = (num_tokens - knots[above - 1]) / (knots[above] - knots[above - 1])
    return (above - 1, 1.0 - share), (above, share)
