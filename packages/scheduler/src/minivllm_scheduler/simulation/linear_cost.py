"""LinearCost: a step's time as a weighted sum of its load, and how the weights are found from measured steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from minivllm_scheduler.simulation.cost import StepLoad
from minivllm_scheduler.simulation.errors import InvalidCost, require_at_least, require_positive
from minivllm_scheduler.simulation.least_squares import non_negative_least_squares
from minivllm_scheduler.simulation.percentile import percentile
from minivllm_scheduler.simulation.token_curve import TokenCurve, knot_shares

WEIGHTS: Final = (
    "base_s",
    "per_token_s",
    "per_row_s",
    "per_sample_s",
    "per_context_token_s",
    "per_attention_pair_s",
)
"""Fields of `LinearCost` that are weights of a sum; a token curve takes the place of the first two."""
REFITS: Final = 4
HELD_UP: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearCost:
    """Seconds of a step, term by term of `StepLoad`.

    Attributes:
        base_s: Of every step.
        per_token_s: Of each computed token.
        per_row_s: Of each row.
        per_sample_s: Of each row that samples.
        per_context_token_s: Of each token whose KV is read.
        per_attention_pair_s: Of each (computed token, attended position).
        token_curve: Of the number of computed tokens, where that is no straight line; on top of the other terms.

    Raises:
        InvalidCost: A term is negative or not finite.
    """

    base_s: float = 0.0
    per_token_s: float = 0.0
    per_row_s: float = 0.0
    per_sample_s: float = 0.0
    per_context_token_s: float = 0.0
    per_attention_pair_s: float = 0.0
    token_curve: TokenCurve | None = None

    def __post_init__(self) -> None:
        for name in WEIGHTS:
            require_at_least(name, getattr(self, name), 0, InvalidCost)

    def step_s(self, load: StepLoad) -> float:
        """Seconds of a step."""
        return (
            self.base_s
            + (self.token_curve.at(load.num_tokens) if self.token_curve is not None else 0.0)
            + self.per_token_s * load.num_tokens
            + self.per_row_s * load.num_rows
            + self.per_sample_s * load.num_samples
            + self.per_context_token_s * load.num_context_tokens
            + self.per_attention_pair_s * load.num_attention_pairs
        )


class MeasuredStep(NamedTuple):
    """One step that was run for real, and the seconds it took."""

    load: StepLoad
    seconds: float


class PredictionError(NamedTuple):
    """|predicted - measured| / measured over some steps.

    Attributes:
        median: Half of the steps are predicted better.
        p95: 95 in 100 of the steps are.
        max: The worst.
    """

    median: float
    p95: float
    max: float


def prediction_error(cost: LinearCost, steps: Sequence[MeasuredStep]) -> PredictionError:
    """How far `cost` is from what was measured; `steps` must not be empty."""
    errors = sorted(abs(cost.step_s(step.load) / step.seconds - 1) for step in steps)
    return PredictionError(percentile(errors, 50), percentile(errors, 95), errors[-1])


def fit_linear_cost(steps: Sequence[MeasuredStep], token_knots: Sequence[int] = ()) -> LinearCost:
    """Finds the weights, none negative, with the least sum of squared relative errors.

    Relative, so that a decode step of a millisecond counts as much as a prefill of a second: first to what was
    measured, then, again and again, to what the fit before predicts. Errors relative to the measured time weigh the
    steps that happened to be fast most, and their fit lies below the mean. A step that took more than
    `HELD_UP` times what is predicted was held up by something else, and counts as if it had taken that.

    Args:
        steps: What was measured.
        token_knots: Where the token curve bends, ascending; with some, base and time per token are in the curve.

    Raises:
        InvalidCost: No step is given, a step's time is not above 0, or the knots do not ascend from at least 1.
    """
    if not steps:
        raise InvalidCost("0 measured steps are given, a fit needs at least 1")
    for step in steps:
        require_positive("the time of a measured step", step.seconds, InvalidCost)
    cost = _fit_relative_to(steps, token_knots, [step.seconds for step in steps])
    for _ in range(REFITS):
        predicted = [cost.step_s(step.load) or step.seconds for step in steps]
        cost = _fit_relative_to(steps, token_knots, predicted)
    return cost


def _fit_relative_to(
    steps: Sequence[MeasuredStep], knots: Sequence[int], expected_s: Sequence[float]
) -> LinearCost:
    rows = [
        [value / seconds for value in (*_token_terms(step.load, knots), *_other_terms(step.load))]
        for step, seconds in zip(steps, expected_s, strict=True)
    ]
    targets = [min(step.seconds / seconds, HELD_UP) for step, seconds in zip(steps, expected_s, strict=True)]
    weights = non_negative_least_squares(rows, targets)
    size = len(knots) or 2
    per_row_s, per_sample_s, per_context_token_s, per_attention_pair_s = weights[size:]
    curve = TokenCurve(tuple(knots), tuple(weights[:size])) if knots else None
    return LinearCost(
        base_s=weights[0] if curve is None else 0.0,
        per_token_s=weights[1] if curve is None else 0.0,
        per_row_s=per_row_s,
        per_sample_s=per_sample_s,
        per_context_token_s=per_context_token_s,
        per_attention_pair_s=per_attention_pair_s,
        token_curve=curve,
    )


def _token_terms(load: StepLoad, knots: Sequence[int]) -> list[float]:
    """The load in the terms of base and tokens, or of the knots that bear it."""
    if not knots:
        return [1.0, load.num_tokens]
    terms = [0.0] * len(knots)
    for index, share in knot_shares(knots, load.num_tokens):
        terms[index] = share
    return terms


def _other_terms(load: StepLoad) -> tuple[int, ...]:
    return load.num_rows, load.num_samples, load.num_context_tokens, load.num_attention_pairs
