import pytest

from minivllm_kvcache import KVCacheManager
from minivllm_scheduler import Admitted, Request, ScheduledRequest, SchedulerOutput, StepResult
from minivllm_scheduler.simulation import ConstantCost, InvalidCost, TimedRequest
from minivllm_scheduler.simulation.clock import VirtualClock
from minivllm_scheduler.simulation.metrics import SimulationMetrics
from minivllm_scheduler.simulation.traffic import SAMPLED_TOKEN_ID, STOP_TOKEN_ID
from minivllm_scheduler.simulation.virtual_executor import VirtualExecutor


class Nonsense:
    def __init__(self, seconds):
        self.seconds = seconds

    def step_s(self, load):
        return self.seconds


def make(cost, host_s=0.0):
    clock, metrics = VirtualClock(), SimulationMetrics(KVCacheManager(8, 2))
    metrics.arrived(TimedRequest(0.0, Request(request_id="a", prompt_token_ids=[1, 2], max_tokens=9)))
    return clock, VirtualExecutor(clock, cost, host_s, metrics)


def step(step_id):
    admitted = (Admitted("a", (1, 2), 2, (0,), 0),) if step_id == 0 else ()
    row = (
        ScheduledRequest("a", 0, 2, (), True)
        if step_id == 0
        else ScheduledRequest("a", step_id + 1, 1, (), True)
    )
    return SchedulerOutput(step_id, (row,), admitted, ())


def test_in_order_a_step_takes_host_and_device_time():
    clock, executor = make(ConstantCost(2.0), host_s=0.5)
    for step_id in range(3):
        executor.launch(step(step_id))
        assert executor.result() == StepResult(step_id, ((0,),))
        assert clock.now_s == pytest.approx(2.5 * (step_id + 1))


@pytest.mark.parametrize(("host_s", "ends"), [(0.5, [2.5, 4.5, 6.5]), (3.0, [6.0, 9.0, 12.0])])
def test_one_ahead_the_faster_of_host_and_device_is_hidden(host_s, ends):
    clock, executor = make(ConstantCost(2.0), host_s)
    executor.launch(step(0))
    found = []
    for step_id in range(1, 4):
        executor.launch(step(step_id))
        executor.result()
        found.append(clock.now_s)
    assert found == pytest.approx(ends)


def test_only_rows_that_sample_get_an_id():
    _, executor = make(ConstantCost(1.0))
    admitted = (Admitted("a", (1, 2), 2, (0,), 0),)
    executor.launch(SchedulerOutput(0, (ScheduledRequest("a", 0, 1, (), False),), admitted, ()))
    assert executor.result() == StepResult(0, ())


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_a_cost_that_is_no_time_is_refused(seconds):
    _, executor = make(Nonsense(seconds))
    with pytest.raises(InvalidCost, match=f"the cost model says {seconds} s for StepLoad"):
        executor.launch(step(0))


@pytest.mark.parametrize("num_ahead", [0, 1])
def test_a_stop_id_comes_where_it_is_due_and_what_follows_is_discarded(num_ahead):
    _, executor = make(ConstantCost(1.0))
    request = Request(request_id="a", prompt_token_ids=[1, 2], max_tokens=9, stop_token_ids=frozenset({1}))
    executor.expect(TimedRequest(0.0, request, stops_after=3))
    for step_id in range(3 + num_ahead):
        executor.launch(step(step_id))
    sampled = [executor.result().token_ids for _ in range(3 + num_ahead)]
    assert sampled[:3] == [((SAMPLED_TOKEN_ID,),), ((SAMPLED_TOKEN_ID,),), ((STOP_TOKEN_ID,),)]
    assert executor.num_discarded_tokens == num_ahead
    executor.forget(request)
    executor.launch(step(9))
    assert executor.num_discarded_tokens == num_ahead
