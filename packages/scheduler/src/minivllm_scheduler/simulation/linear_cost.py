"""LinearCost: a step's time as a weighted sum of its load, and how the weights are found from measured steps."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from typing import Final, NamedTuple

from minivllm_scheduler.simulation.cost import StepLoad
from minivllm_scheduler.simulation.errors import InvalidCost, require_at_least, require_positive

SINGULAR: Final = 1e-12
"""A pivot below this, of columns scaled to length 1, says that they depend on each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearCost:
    """Seconds of a step, term by term of `StepLoad`.

    Attributes:
        base_s: Of every step.
        per_row_s: Of each row.
        per_token_s: Of each computed token.
        per_sample_s: Of each row that samples.
        per_context_token_s: Of each token whose KV is read.
        per_attention_pair_s: Of each (computed token, attended position).

    Raises:
        InvalidCost: A term is negative or not finite.
    """

    base_s: float = 0.0
    per_row_s: float = 0.0
    per_token_s: float = 0.0
    per_sample_s: float = 0.0
    per_context_token_s: float = 0.0
    per_attention_pair_s: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            require_at_least(field.name, getattr(self, field.name), 0, InvalidCost)

    def step_s(self, load: StepLoad) -> float:
        """Seconds of a step."""
        return (
            self.base_s
            + self.per_row_s * load.num_rows
            + self.per_token_s * load.num_tokens
            + self.per_sample_s * load.num_samples
            + self.per_context_token_s * load.num_context_tokens
            + self.per_attention_pair_s * load.num_attention_pairs
        )


class MeasuredStep(NamedTuple):
    """One step that was run for real, and the seconds it took."""

    load: StepLoad
    seconds: float


class LinearFit(NamedTuple):
    """A fitted model and how well it repeats the steps that it was fitted to.

    Attributes:
        cost: The model.
        mean_error: Mean of |predicted - measured| / measured.
        max_error: Largest of them.
    """

    cost: LinearCost
    mean_error: float
    max_error: float


def fit_linear_cost(steps: Sequence[MeasuredStep]) -> LinearFit:
    """Finds the weights, none negative, with the least sum of squared relative errors.

    Relative, so that a decode step of a millisecond counts as much as a prefill of a second. The least squares
    solution under x >= 0 is the unconstrained solution over those terms that it does not set to 0; with six
    terms all 63 choices of them are tried, which finds it exactly.

    Raises:
        InvalidCost: No step is given, or a step's time is not above 0.
    """
    if not steps:
        raise InvalidCost("0 measured steps are given, a fit needs at least 1")
    for step in steps:
        require_positive("the time of a measured step", step.seconds, InvalidCost)
    rows = [tuple(value / step.seconds for value in (1, *_terms(step.load))) for step in steps]
    cost = LinearCost(**dict(zip((field.name for field in fields(LinearCost)), _fit(rows), strict=True)))
    errors = [abs(cost.step_s(step.load) / step.seconds - 1) for step in steps]
    return LinearFit(cost, sum(errors) / len(errors), max(errors))


def _terms(load: StepLoad) -> tuple[int, ...]:
    """The load in the order of `LinearCost`'s fields."""
    return (
        load.num_rows,
        load.num_tokens,
        load.num_samples,
        load.num_context_tokens,
        load.num_attention_pairs,
    )


def _fit(rows: Sequence[tuple[float, ...]]) -> list[float]:
    """X >= 0 with the least Σ (row · x - 1)²."""
    size = len(rows[0])
    scales = [sum(row[i] ** 2 for row in rows) ** 0.5 or 1.0 for i in range(size)]
    gram = [
        [sum(row[i] * row[j] for row in rows) / (scales[i] * scales[j]) for j in range(size)]
        for i in range(size)
    ]
    moments = [sum(row[i] for row in rows) / scales[i] for i in range(size)]
    best, most_explained = [0.0] * size, 0.0
    for count in range(1, size + 1):
        for chosen in combinations(range(size), count):
            solved = _solve([[gram[i][j] for j in chosen] + [moments[i]] for i in chosen])
            if solved is None or min(solved) < 0:
                continue
            explained = sum(x * moments[i] for x, i in zip(solved, chosen, strict=True))
            if explained > most_explained * (1 + SINGULAR):  # of equals, the one with fewer terms
                most_explained = explained
                best = [0.0] * size
                for x, i in zip(solved, chosen, strict=True):
                    best[i] = x / scales[i]
    return best


def _solve(augmented: list[list[float]]) -> list[float] | None:
    """Gaussian elimination of a symmetric positive definite system; None if it is singular."""
    size = len(augmented)
    for i in range(size):
        if augmented[i][i] < SINGULAR:
            return None
        for k in range(i + 1, size):
            factor = augmented[k][i] / augmented[i][i]
            for j in range(i, size + 1):
                augmented[k][j] -= factor * augmented[i][j]
    solution = [0.0] * size
    for i in reversed(range(size)):
        known = sum(augmented[i][j] * solution[j] for j in range(i + 1, size))
        solution[i] = (augmented[i][size] - known) / augmented[i][i]
    return solution
