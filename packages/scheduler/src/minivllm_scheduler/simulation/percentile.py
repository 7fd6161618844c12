"""percentile: the one definition of it that every figure uses, simulated or measured."""

from collections.abc import Sequence


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value at index percent/100 · (n - 1) of n sorted ones, linearly between the two nearest.

    NumPy's default, definition 7 of Hyndman and Fan, *Sample quantiles in statistical packages*, 1996.

    Args:
        ordered: At least one value, in ascending order.
        percent: In [0, 100].
    """
    position = percent / 100 * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])
