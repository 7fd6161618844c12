import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_scheduler.simulation import KVUse
from minivllm_scheduler.simulation.kv_use_record import MAX_MOMENTS, KVUseRecord


def test_nothing_was_in_use_before_the_first_moment():
    record = KVUseRecord()
    assert (record.mean_blocks, record.peak_blocks, record.moments) == (0.0, 0, [])


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9)), min_size=1))
def test_mean_and_peak_are_exact(changes):
    record, time_s, area, in_use = KVUseRecord(), 0, 0, 0
    for gap_s, then in changes:
        time_s, area = time_s + gap_s, area + gap_s * in_use
        in_use = then
        record.take(float(time_s), then)
    assert record.mean_blocks == pytest.approx(area / time_s)
    assert record.peak_blocks == max(then for _, then in changes)
    assert record.moments[0] == KVUse(float(changes[0][0]), changes[0][1])


def test_moments_are_thinned_out_evenly():
    record = KVUseRecord()
    for number in range(10 * MAX_MOMENTS):
        record.take(float(number), number)
        assert len(record.moments) < MAX_MOMENTS
    times = [moment.time_s for moment in record.moments]
    assert len(times) >= MAX_MOMENTS / 2
    assert len({later - earlier for earlier, later in itertools.pairwise(times)}) == 1


@given(st.lists(st.floats(1e-3, 10.0), min_size=1), st.integers(1, 99))
def test_rounding_does_not_carry_the_mean_past_the_peak(gaps_s, in_use):
    record = KVUseRecord()
    record.take(0.0, in_use)
    for time_s in itertools.accumulate(gaps_s):
        record.take(time_s, in_use)
    assert record.mean_blocks == pytest.approx(in_use)
    assert record.mean_blocks <= record.peak_blocks
