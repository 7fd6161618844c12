import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minivllm_scheduler.simulation.least_squares import fit_to_ones


def gradient(rows, x):
    """Of half the squared error, term by term."""
    residuals = [sum(a * b for a, b in zip(row, x, strict=True)) - 1 for row in rows]
    return [sum(row[i] * r for row, r in zip(rows, residuals, strict=True)) for i in range(len(x))]


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_no_weight_can_change_for_the_better(seed, num_terms, num_rows):
    """The conditions of Karush, Kuhn and Tucker, which only the best weights meet."""
    rng = random.Random(seed)
    rows = [
        [rng.choice([0.0, rng.random(), 100 * rng.random()]) for _ in range(num_terms)]
        for _ in range(num_rows)
    ]
    x = fit_to_ones(rows)
    lengths = [sum(row[i] ** 2 for row in rows) ** 0.5 or 1.0 for i in range(num_terms)]
    for weight, slope, length in zip(x, gradient(rows, x), lengths, strict=True):
        assert weight >= 0
        assert slope / length >= -1e-6
        if weight:
            assert slope / length == pytest.approx(0, abs=1e-6)


def test_equal_terms_count_once():
    x = fit_to_ones([[2.0, 2.0], [2.0, 2.0]])
    assert sorted(x) == pytest.approx([0.0, 0.5])


def test_a_term_that_only_hurts_has_no_weight():
    assert fit_to_ones([[1.0, 1.0], [1.0, 0.0], [1.0, 0.0]]) == pytest.approx([1.0, 0.0])


def test_terms_without_a_measurement_have_no_weight():
    assert fit_to_ones([[0.0, 4.0]]) == [0.0, 0.25]
