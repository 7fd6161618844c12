import random
from dataclasses import astuple, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minivllm_scheduler.simulation import (
    InvalidCost,
    LinearCost,
    MeasuredStep,
    StepLoad,
    TokenCurve,
    fit_linear_cost,
    prediction_error,
)
from minivllm_scheduler.simulation.linear_cost import WEIGHTS


def some_loads(count, seed=0):
    """Steps as an engine has them: decodes of various contexts, prompts in between."""
    rng = random.Random(seed)
    loads = []
    for _ in range(count):
        decodes, chunk, past = rng.randrange(0, 33), rng.randrange(0, 513), rng.randrange(0, 300)
        context = sum(rng.randrange(1, 1000) for _ in range(decodes))
        pairs = context + chunk * past + chunk * (chunk + 1) // 2
        ends = chunk > 0 and rng.random() < 0.5
        loads.append(
            StepLoad(
                decodes + (chunk > 0), decodes + chunk or 1, decodes + ends, context + past + chunk, pairs
            )
        )
    return loads


def weights_of(cost):
    return astuple(cost)[: len(WEIGHTS)]


def test_step_s_weighs_every_term():
    weights = [1.0, 10.0, 100.0, 1e3, 1e4, 1e5]
    cost = LinearCost(**dict(zip(WEIGHTS, weights, strict=True)))
    assert cost.step_s(StepLoad(2, 3, 4, 5, 6)) == 1 + 30 + 200 + 4e3 + 5e4 + 6e5
    curved = replace(cost, token_curve=TokenCurve((1, 5), (1e6, 3e6)))
    assert curved.step_s(StepLoad(2, 3, 4, 5, 6)) == 654_231 + 2e6


@given(st.lists(st.sampled_from([0.0, 0.1, 1.0, 3.0]), min_size=6, max_size=6).filter(any))
@settings(max_examples=25)
def test_a_fit_finds_the_weights_behind_exact_measurements(weights):
    scales = (5e-3, 2e-5, 1e-4, 1e-4, 1e-7, 1e-8)
    true = LinearCost(**{name: w * scale for name, w, scale in zip(WEIGHTS, weights, scales, strict=True)})
    steps = [MeasuredStep(load, true.step_s(load)) for load in some_loads(60)]
    steps = [step for step in steps if step.seconds > 0]
    fitted = fit_linear_cost(steps)
    assert weights_of(fitted) == pytest.approx(weights_of(true), rel=1e-4, abs=1e-12)
    assert prediction_error(fitted, steps).max < 1e-6


def test_a_fit_finds_the_curve_behind_exact_measurements():
    curve = TokenCurve((1, 16, 128, 512), (0.02, 0.021, 0.1, 0.7))
    true = LinearCost(token_curve=curve, per_row_s=1e-4, per_attention_pair_s=1e-8)
    steps = [MeasuredStep(load, true.step_s(load)) for load in some_loads(200)]
    fitted = fit_linear_cost(steps, curve.knots)
    assert prediction_error(fitted, steps).max < 1e-6
    assert fitted.token_curve.seconds == pytest.approx(curve.seconds, rel=1e-4)
    assert fitted.base_s == fitted.per_token_s == 0
    assert prediction_error(fit_linear_cost(steps), steps).max > 0.1


def test_noise_of_the_measurements_is_the_error_of_the_fit():
    true, rng = LinearCost(base_s=0.01, per_token_s=1e-4), random.Random(5)
    steps = [MeasuredStep(load, true.step_s(load) * rng.uniform(0.9, 1.1)) for load in some_loads(400)]
    cost = fit_linear_cost(steps)
    error = prediction_error(cost, steps)
    assert error.median == pytest.approx(0.05, rel=0.2)
    assert error.p95 == pytest.approx(0.095, rel=0.2)
    assert error.p95 < error.max < 0.15
    assert cost.step_s(StepLoad(1, 100, 1, 100, 5050)) == pytest.approx(0.02, rel=0.05)


def test_a_fit_lies_at_the_mean_of_what_was_measured():
    true, rng = LinearCost(base_s=0.01, per_token_s=1e-4), random.Random(6)
    steps = [MeasuredStep(load, true.step_s(load) * rng.uniform(0.6, 1.4)) for load in some_loads(800)]
    cost = fit_linear_cost(steps)
    predicted_s, measured_s = (
        sum(cost.step_s(step.load) for step in steps),
        sum(step.seconds for step in steps),
    )
    assert predicted_s == pytest.approx(measured_s, rel=0.02)


def test_a_step_that_was_held_up_hardly_moves_the_fit():
    true = LinearCost(base_s=0.01, per_token_s=1e-4)
    steps = [MeasuredStep(load, true.step_s(load)) for load in some_loads(100)]
    held_up = [*steps, MeasuredStep(steps[0].load, 4000.0)]
    assert prediction_error(fit_linear_cost(held_up), steps).max < 0.1


def test_terms_that_cannot_be_told_apart_are_one():
    steps = [MeasuredStep(StepLoad(n, n, n, n, n), 0.001 * n) for n in range(1, 9)]
    cost = fit_linear_cost(steps)
    assert prediction_error(cost, steps).max < 1e-9
    assert sum(value > 0 for value in weights_of(cost)) == 1


def test_one_step_is_a_constant():
    load = StepLoad(1, 8, 1, 8, 36)
    assert fit_linear_cost([MeasuredStep(load, 0.5)]).step_s(load) == pytest.approx(0.5)


def test_nothing_to_fit_is_refused():
    with pytest.raises(InvalidCost, match="0 measured steps"):
        fit_linear_cost([])
    with pytest.raises(InvalidCost, match="time of a measured step is 0"):
        fit_linear_cost([MeasuredStep(StepLoad(1, 1, 1, 1, 1), 0)])


@pytest.mark.parametrize("field", WEIGHTS)
def test_a_negative_term_is_refused_by_name(field):
    with pytest.raises(InvalidCost, match=f"{field} is -1"):
        LinearCost(**{field: -1.0})
