import pytest

from minivllm_scheduler import ScheduledRequest
from minivllm_scheduler.simulation import ConstantCost, InvalidCost, StepLoad


def test_the_load_sums_over_the_rows():
    rows = [
        ScheduledRequest("decode", 9, 1, (), True),
        ScheduledRequest("prompt", 0, 4, (), True),
        ScheduledRequest("chunk", 2, 3, (), False),
    ]
    pairs = 10 + (1 + 2 + 3 + 4) + (3 + 4 + 5)
    assert StepLoad.of(rows) == StepLoad(3, 8, 2, 10 + 4 + 5, pairs)


def test_constant():
    assert ConstantCost(0.25).step_s(StepLoad(1, 1, 1, 1, 1)) == 0.25


@pytest.mark.parametrize("seconds", [-0.1, float("inf"), float("nan")])
def test_a_time_that_is_none_is_refused(seconds):
    with pytest.raises(InvalidCost, match=f"seconds is {seconds}"):
        ConstantCost(seconds)
