import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_scheduler.simulation import Distribution, percentile


def test_nothing_has_no_distribution():
    assert Distribution.of([]) is None


def test_one_value_is_every_percentile():
    assert Distribution.of([3.0]) == Distribution(3.0, 3.0, 3.0, 3.0, 3.0)


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_a_distribution_is_mean_percentiles_and_largest(values):
    found, ordered = Distribution.of(iter(values)), sorted(values)
    assert (found.p50_s, found.p95_s, found.p99_s) == tuple(percentile(ordered, p) for p in (50, 95, 99))
    assert found.mean_s == pytest.approx(statistics.fmean(values))
    assert found.max_s == max(values)
