import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_scheduler.simulation import percentile


@given(st.lists(st.floats(0, 1e6), min_size=2), st.integers(1, 99))
def test_it_is_that_of_the_statistics_module(values, percent):
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    assert percentile(sorted(values), percent) == pytest.approx(cuts[percent - 1])


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_the_ends_are_the_extremes_and_the_middle_is_the_median(values):
    ordered = sorted(values)
    assert (percentile(ordered, 0), percentile(ordered, 100)) == (ordered[0], ordered[-1])
    assert percentile(ordered, 50) == pytest.approx(statistics.median(values))
