import random
from dataclasses import astuple, fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minivllm_scheduler.simulation import InvalidCost, LinearCost, MeasuredStep, StepLoad, fit_linear_cost


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


def test_step_s_weighs_every_term():
    weights = [1.0, 10.0, 100.0, 1e3, 1e4, 1e5]
    cost = LinearCost(**dict(zip((field.name for field in fields(LinearCost)), weights, strict=True)))
    assert cost.step_s(StepLoad(2, 3, 4, 5, 6)) == 1 + 20 + 300 + 4e3 + 5e4 + 6e5


@given(st.lists(st.sampled_from([0.0, 0.1, 1.0, 3.0]), min_size=6, max_size=6).filter(any))
@settings(max_examples=25, deadline=None)
def test_a_fit_finds_the_weights_behind_exact_measurements(weights):
    scales = (5e-3, 1e-4, 2e-5, 1e-4, 1e-7, 1e-8)
    true = LinearCost(
        **{field.name: w * scale for field, w, scale in zip(fields(LinearCost), weights, scales, strict=True)}
    )
    steps = [MeasuredStep(load, true.step_s(load)) for load in some_loads(60)]
    fit = fit_linear_cost([step for step in steps if step.seconds > 0])
    assert astuple(fit.cost) == pytest.approx(astuple(true), rel=1e-4, abs=1e-12)
    assert fit.max_error < 1e-6


def test_noise_of_the_measurements_is_the_error_of_the_fit():
    true, rng = LinearCost(base_s=0.01, per_token_s=1e-4), random.Random(5)
    steps = [MeasuredStep(load, true.step_s(load) * rng.uniform(0.9, 1.1)) for load in some_loads(400)]
    fit = fit_linear_cost(steps)
    assert fit.mean_error == pytest.approx(0.05, rel=0.2)
    assert fit.max_error < 0.15
    assert fit.cost.step_s(StepLoad(1, 100, 1, 100, 5050)) == pytest.approx(0.02, rel=0.05)


@given(st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_no_other_weights_come_closer(seed):
    """The squared relative error of a convex problem: no small step from the solution makes it smaller."""
    rng = random.Random(seed)
    steps = [MeasuredStep(load, rng.uniform(0.001, 0.1)) for load in some_loads(20, seed)]
    cost = fit_linear_cost(steps).cost

    def error(weights):
        terms = [(1, load.num_rows, load.num_tokens, *load[2:]) for load, _ in steps]
        return sum(
            (sum(w * x for w, x in zip(weights, row, strict=True)) / step.seconds - 1) ** 2
            for row, step in zip(terms, steps, strict=True)
        )

    weights, scales = astuple(cost), (1e-3, 1e-5, 1e-6, 1e-5, 1e-8, 1e-9)
    least = error(weights)
    for index, scale in enumerate(scales):
        for change in (scale, -scale):
            moved = list(weights)
            moved[index] = max(0.0, moved[index] + change * 1e-2)
            assert error(moved) >= least * (1 - 1e-9)


def test_terms_that_cannot_be_told_apart_are_one():
    steps = [MeasuredStep(StepLoad(n, n, n, n, n), 0.001 * n) for n in range(1, 9)]
    fit = fit_linear_cost(steps)
    assert fit.max_error < 1e-9
    assert sum(value > 0 for value in astuple(fit.cost)) == 1


def test_one_step_is_a_constant():
    load = StepLoad(1, 8, 1, 8, 36)
    assert fit_linear_cost([MeasuredStep(load, 0.5)]).cost.step_s(load) == pytest.approx(0.5)


def test_nothing_to_fit_is_refused():
    with pytest.raises(InvalidCost, match="0 measured steps"):
        fit_linear_cost([])
    with pytest.raises(InvalidCost, match="time of a measured step is 0"):
        fit_linear_cost([MeasuredStep(StepLoad(1, 1, 1, 1, 1), 0)])


@pytest.mark.parametrize("field", [field.name for field in fields(LinearCost)])
def test_a_negative_term_is_refused_by_name(field):
    with pytest.raises(InvalidCost, match=f"{field} is -1"):
        LinearCost(**{field: -1.0})
