"""Least squares under non-negative weights, in plain Python: for a dozen terms and some thousand measurements."""

from collections.abc import Sequence
from typing import Final

SINGULAR: Final = 1e-12
"""A pivot below this, of columns scaled to length 1, says that they depend on each other."""
CONVERGED: Final = 1e-10
"""A gradient below this, over the length of the target, is rounding."""

_Matrix = list[list[float]]


def non_negative_least_squares(rows: Sequence[Sequence[float]], targets: Sequence[float]) -> list[float]:
    """X >= 0 with the least Σ (row · x - target)².

    The active-set method of Lawson and Hanson, *Solving Least Squares Problems* (1974), chapter 23, on the normal
    equations: terms enter one by one, the one that helps most first, and leave when their weight would be negative.
    A term that depends on those already in stays out.

    Args:
        rows: [measurement][term]; at least one, all of one length.
        targets: [measurement].
    """
    size = len(rows[0])
    scales = [sum(row[i] ** 2 for row in rows) ** 0.5 or 1.0 for i in range(size)]
    scaled = [[row[i] / scales[i] for i in range(size)] for row in rows]
    gram = [[sum(row[i] * row[j] for row in scaled) for j in range(size)] for i in range(size)]
    moments = [sum(row[i] * target for row, target in zip(scaled, targets, strict=True)) for i in range(size)]
    length = sum(target**2 for target in targets) ** 0.5
    x = _active_set(gram, moments, CONVERGED * length)
    return [value / scale for value, scale in zip(x, scales, strict=True)]


def _active_set(gram: _Matrix, moments: Sequence[float], tolerance: float) -> list[float]:
    """X >= 0 with gram · x = moments in the terms that are not 0, and no gradient above `tolerance` in the others."""
    size = len(moments)
    x = [0.0] * size
    chosen: list[int] = []
    dependent: set[int] = set()
    while True:
        gradient = [moments[i] - sum(gram[i][j] * x[j] for j in chosen) for i in range(size)]
        candidates = [i for i in range(size) if i not in chosen and i not in dependent]
        entering = max(candidates, key=lambda i: gradient[i], default=None)
        if entering is None or gradient[entering] <= tolerance:
            return x
        solved = _solve(gram, moments, [*chosen, entering])
        if solved is None or solved[entering] <= 0:
            dependent.add(entering)
            continue
        chosen.append(entering)
        dependent.clear()
        x = _back_to_feasible(gram, moments, x, chosen, solved)


def _back_to_feasible(
    gram: _Matrix, moments: Sequence[float], x: list[float], chosen: list[int], solved: list[float]
) -> list[float]:
    """Walks from x towards the solution over `chosen`; terms that reach 0 leave `chosen`, and it is solved again."""
    while min(solved[i] for i in chosen) <= 0:
        step, leaving = min((x[i] / (x[i] - solved[i]) if x[i] else 0.0, i) for i in chosen if solved[i] <= 0)
        x = [value + step * (target - value) for value, target in zip(x, solved, strict=True)]
        x[leaving] = 0.0
        chosen.remove(leaving)
        fewer = _solve(gram, moments, chosen)
        assert fewer is not None, "part of an independent set is independent"
        solved = fewer
    return solved


def _solve(gram: _Matrix, moments: Sequence[float], chosen: Sequence[int]) -> list[float] | None:
    """The solution in the chosen terms, 0 in the others, by Gaussian elimination; None if they are dependent."""
    augmented = [[*(gram[i][j] for j in chosen), moments[i]] for i in chosen]
    size = len(chosen)
    for i in range(size):
        if augmented[i][i] < SINGULAR:
            return None
        for k in range(i + 1, size):
            factor = augmented[k][i] / augmented[i][i]
            for j in range(i, size + 1):
                augmented[k][j] -= factor * augmented[i][j]
    x = [0.0] * len(moments)
    for i in reversed(range(size)):
        known = sum(augmented[i][j] * x[chosen[j]] for j in range(i + 1, size))
        x[chosen[i]] = (augmented[i][size] - known) / augmented[i][i]
    return x
