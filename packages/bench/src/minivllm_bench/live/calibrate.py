"""Fits a cost model to the passes of a real engine under traffic that covers what its steps can be."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from minivllm_scheduler.simulation import (
    ClosedLoop,
    FixedLength,
    LengthDistribution,
    LinearCost,
    MeasuredStep,
    PoissonArrivals,
    PredictionError,
    SyntheticWorkload,
    UniformLength,
    Workload,
    fit_linear_cost,
    prediction_error,
)


def _phase(
    num_users: int, num_requests: int, prompt_tokens: LengthDistribution, output_tokens: LengthDistribution
) -> SyntheticWorkload:
    return SyntheticWorkload(
        num_requests=num_requests,
        arrivals=ClosedLoop(num_users),
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
    )


WARM_UP: Final = _phase(8, 16, UniformLength(1, 300), FixedLength(4))
PHASES: Final = (
    _phase(1, 48, UniformLength(1, 160), FixedLength(2)),
    _phase(1, 16, UniformLength(1, 512), UniformLength(4, 12)),
    _phase(2, 4, UniformLength(1000, 1800), FixedLength(32)),
    _phase(4, 16, UniformLength(1, 400), UniformLength(8, 48)),
    _phase(8, 24, UniformLength(1, 300), UniformLength(8, 48)),
    _phase(16, 48, UniformLength(1, 200), UniformLength(8, 48)),
    _phase(32, 64, UniformLength(1, 128), UniformLength(8, 48)),
    _phase(64, 128, UniformLength(1, 64), UniformLength(8, 32)),
)
"""Users who each wait for their answer: n of them make steps of n decodes, with prompts in between. The many short
answers to one user tell the cost of a prompt's tokens from that of as many rows."""
ROUNDS: Final = 2
"""Times that the phases are run, so that no slow half minute of the machine falls on one kind of step alone."""
HELD_OUT: Final = SyntheticWorkload(
    num_requests=30,
    arrivals=PoissonArrivals(3.0),
    prompt_tokens=UniformLength(16, 256),
    output_tokens=UniformLength(8, 64),
    seed=1000,
)
"""Traffic of another kind, whose steps the fit does not see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A fitted cost model and how good it is.

    Attributes:
        cost: The model.
        num_steps: Passes that it was fitted to.
        fit_error: On those.
        num_held_out: Passes of other traffic that it was not fitted to.
        held_out_error: On those.
    """

    cost: LinearCost
    num_steps: int
    fit_error: PredictionError
    num_held_out: int
    held_out_error: PredictionError


def calibrate(
    measure: Callable[[Workload], Sequence[MeasuredStep]], announce: Callable[[str], None]
) -> Calibration:
    """Measures all phases and fits.

    Args:
        measure: Serves a workload and returns the passes of the engine's step loop meanwhile.
        announce: Told in a few words what happens next.
    """
    announce("warm-up")
    measure(WARM_UP)
    steps: list[MeasuredStep] = []
    for number in range(ROUNDS):
        for phase in PHASES:
            announce(f"round {number + 1} of {ROUNDS}: {phase.arrivals}")
            steps += measure(dataclasses.replace(phase, seed=number))
    announce("steps that the fit does not see")
    held_out = measure(HELD_OUT)
    return fit(steps, held_out)


def fit(steps: Sequence[MeasuredStep], held_out: Sequence[MeasuredStep]) -> Calibration:
    """Fits to `steps` and says the errors on both; neither may be empty."""
    cost = fit_linear_cost(steps, choose_knots(steps))
    return Calibration(
        cost=cost,
        num_steps=len(steps),
        fit_error=prediction_error(cost, steps),
        num_held_out=len(held_out),
        held_out_error=prediction_error(cost, held_out),
    )


def choose_knots(steps: Sequence[MeasuredStep]) -> tuple[int, ...]:
    """Where a token curve bends: at the fewest and the most tokens, and at the commonest size of each doubling.

    So a step was measured at every knot, and no two knots are further apart than the measurements leave them.
    """
    counts = Counter(step.load.num_tokens for step in steps)
    commonest: dict[int, int] = {}
    for num_tokens, _ in counts.most_common():
        commonest.setdefault(num_tokens.bit_length(), num_tokens)
    return tuple(sorted({min(counts), max(counts), *commonest.values()}))
