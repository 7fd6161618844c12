import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minivllm_scheduler.simulation.least_squares import non_negative_least_squares


def gradient(rows, targets, x):
    """Of half the squared error, term by term."""
    residuals = [
        sum(a * b for a, b in zip(row, x, strict=True)) - target
        for row, target in zip(rows, targets, strict=True)
    ]
    return [sum(row[i] * r for row, r in zip(rows, residuals, strict=True)) for i in range(len(x))]


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 40))
@settings(max_examples=60)
def test_no_weight_can_change_for_the_better(seed, num_terms, num_rows):
    """The conditions of Karush, Kuhn and Tucker, which only the best weights meet."""
    rng = random.Random(seed)
    rows = [
        [rng.choice([0.0, rng.random(), 100 * rng.random()]) for _ in range(num_terms)]
        for _ in range(num_rows)
    ]
    targets = [rng.uniform(0.5, 2.0) for _ in rows]
    x = non_negative_least_squares(rows, targets)
    lengths = [sum(row[i] ** 2 for row in rows) ** 0.5 or 1.0 for i in range(num_terms)]
    for weight, slope, length in zip(x, gradient(rows, targets, x), lengths, strict=True):
        assert weight >= 0
        assert slope / length >= -1e-6
        if weight:
            assert slope / length == pytest.approx(0, abs=1e-6)


def test_equal_terms_count_once():
    x = non_negative_least_squares([[2.0, 2.0], [2.0, 2.0]], [1.0, 1.0])
    assert sorted(x) == pytest.approx([0.0, 0.5])


def test_a_term_that_only_hurts_has_no_weight():
    assert non_negative_least_squares([[1.0, 1.0], [1.0, 0.0], [1.0, 0.0]], [1.0, 1.0, 1.0]) == pytest.approx(
        [1.0, 0.0]
    )


def test_terms_without_a_measurement_have_no_weight():
    assert non_negative_least_squares([[0.0, 4.0]], [2.0]) == [0.0, 0.5]
