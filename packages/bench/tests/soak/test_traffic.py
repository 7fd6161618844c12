import asyncio

import pytest

from minivllm_bench.soak.cases import CaseLimits, draw_cases
from minivllm_bench.soak.traffic import BURST, Traffic, TrafficPlan
from minivllm_bench.soak.visitor import End

# With this seed the first visits are of all kinds, and a burst of seven asks something twice: there are six cases.
PLAN = TrafficPlan(duration_s=1.5, num_visitors=5, burst_size=7, burst_every_s=0.3, seed=10)


def run(visitor, *, memory=None):
    cases = draw_cases(CaseLimits(6, 50, 20, 5), seed=0)
    return asyncio.run(Traffic(visitor, cases, PLAN, lambda: memory).run())


def test_traffic_is_of_all_kinds_and_every_visit_is_counted(server, visitor):
    log = run(visitor, memory=7)
    assert log.num_faults == 0
    assert log.faults == []
    assert {kind for kind, _ in log.ends} == {
        "whole",
        "stream",
        "slow reader",
        "bad request",
        "leaves",
        BURST,
    }
    assert log.ends[BURST, End.ANSWERED] % PLAN.burst_size == 0
    assert log.count(End.ANSWERED) >= PLAN.burst_size + 3
    assert log.count(End.REFUSED) == log.ends["bad request", End.REFUSED] > 0
    assert log.samples[0].resident_bytes == 7


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("changed", "in place of"),
        ("crossed ids", "got the answer to soak-of-another"),
        ("unhealthy", "/health: status 503"),
        ("broken", "status 500"),
    ],
)
def test_faults_are_counted_and_the_first_are_kept(server, visitor, fault, said):
    server.fault = fault
    log = run(visitor)
    assert log.num_faults > 0
    assert any(said in text for text in log.faults)
    assert len(log.faults) <= 20
    assert log.samples == []


def test_a_full_queue_is_no_fault(server, visitor):
    server.fault = "busy"
    log = run(visitor)
    assert log.num_faults == 0
    assert log.count(End.QUEUE_FULL) >= PLAN.burst_size
