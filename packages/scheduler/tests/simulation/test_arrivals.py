import itertools
import random
import statistics

import pytest

from minivllm_scheduler.simulation import ClosedLoop, GammaArrivals, InvalidWorkload, PoissonArrivals


def gaps(process, count=20_000):
    times = [0.0, *itertools.islice(process.times_s(random.Random(3)), count)]
    return [later - earlier for earlier, later in itertools.pairwise(times)]


@pytest.mark.parametrize(
    ("process", "cv"),
    [
        (PoissonArrivals(4.0), 1.0),
        (GammaArrivals(4.0, 1.0), 1.0),
        (GammaArrivals(4.0, 3.0), 3.0),
        (GammaArrivals(4.0, 0.2), 0.2),
    ],
)
def test_gaps_have_the_mean_and_the_variation_asked_for(process, cv):
    found = gaps(process)
    assert min(found) >= 0
    mean = statistics.fmean(found)
    assert mean == pytest.approx(0.25, rel=0.06)
    assert statistics.pstdev(found) / mean == pytest.approx(cv, rel=0.06)


def test_every_user_of_a_closed_loop_starts_at_0():
    assert list(ClosedLoop(3).times_s(random.Random(0))) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: PoissonArrivals(0), "rate_per_s is 0"),
        (lambda: PoissonArrivals(float("inf")), "rate_per_s is inf"),
        (lambda: GammaArrivals(-1, 1), "rate_per_s is -1"),
        (lambda: GammaArrivals(1, 0), "cv is 0"),
        (lambda: ClosedLoop(0), "num_users is 0"),
        (lambda: ClosedLoop(1, -2), "think_time_s is -2"),
        (lambda: ClosedLoop(1, float("nan")), "think_time_s is nan"),
    ],
)
def test_what_is_no_process_is_refused_with_field_and_value(make, named):
    with pytest.raises(InvalidWorkload, match=named):
        make()
