import random
import statistics

import pytest

from minivllm_scheduler.simulation import FixedLength, InvalidWorkload, LogNormalLength, UniformLength
from minivllm_scheduler.simulation.lengths import MAX_LENGTH_TOKENS


def draws(distribution, count=4000):
    rng = random.Random(1)
    return [distribution.draw(rng) for _ in range(count)]


def test_fixed():
    assert set(draws(FixedLength(7), 10)) == {7}


def test_uniform_reaches_both_ends_equally():
    counts = [draws(UniformLength(3, 6)).count(length) for length in range(3, 7)]
    assert sum(counts) == 4000
    assert max(counts) < 1.2 * min(counts)


def test_log_normal_has_its_median_and_its_tail():
    lengths = draws(LogNormalLength(500, 1.0))
    assert statistics.median(lengths) == pytest.approx(500, rel=0.1)
    above = sum(length > 500 * 2.718281828 for length in lengths) / len(lengths)
    assert above == pytest.approx(0.1587, abs=0.02)  # one standard deviation of a normal variable


def test_log_normal_is_clipped():
    lengths = draws(LogNormalLength(10, 3.0, low=5, high=20))
    assert min(lengths) == 5
    assert max(lengths) == 20
    assert max(draws(LogNormalLength(1e300, 1e300))) == MAX_LENGTH_TOKENS


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: FixedLength(0), "0 to 0"),
        (lambda: FixedLength(MAX_LENGTH_TOKENS + 1), str(MAX_LENGTH_TOKENS)),
        (lambda: UniformLength(5, 4), "5 to 4"),
        (lambda: UniformLength(-1, 4), "-1 to 4"),
        (lambda: LogNormalLength(0, 1), "got 0 and 1"),
        (lambda: LogNormalLength(5, -1), "got 5 and -1"),
        (lambda: LogNormalLength(float("nan"), 1), "nan"),
        (lambda: LogNormalLength(5, 1, low=9, high=8), "9 to 8"),
    ],
)
def test_what_is_no_length_is_refused_with_its_value(make, named):
    with pytest.raises(InvalidWorkload, match=named):
        make()
