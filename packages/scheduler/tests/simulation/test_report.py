import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_scheduler.simulation import Distribution


def test_nothing_has_no_distribution():
    assert Distribution.of([]) is None


def test_one_value_is_every_percentile():
    assert Distribution.of([3.0]) == Distribution(3.0, 3.0, 3.0, 3.0, 3.0)


@given(st.lists(st.floats(0, 1e6), min_size=2))
def test_percentiles_are_those_of_the_statistics_module(values):
    found = Distribution.of(iter(values))
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    assert (found.p50_s, found.p95_s, found.p99_s) == pytest.approx((cuts[49], cuts[94], cuts[98]))
    assert found.mean_s == pytest.approx(statistics.fmean(values))
    assert found.max_s == max(values)
