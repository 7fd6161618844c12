import logging

import pytest

from minivllm_scheduler import FCFS, LIFO, Pool, Request
from minivllm_scheduler.policy_guard import PolicyGuard

REQUEST = Request(request_id="a", prompt_token_ids=[1], max_tokens=1)
POOL = Pool(num_blocks=10, block_size=4)


def raises(*_):
    raise LookupError("the policy is broken")


def admit_freely(*_):
    return 0


def answering(answer):
    return lambda *_: answer


def guard(*, order=FCFS, admission=admit_freely, victim=LIFO):
    return PolicyGuard(order, admission, victim, watermark_blocks=3)


@pytest.mark.parametrize(
    "order", [raises, *map(answering, [None, "1", True, float("nan"), 10**400, [1.0], 1j])]
)
def test_a_rank_that_is_none_is_that_of_the_front(order):
    policies = guard(order=order)
    policies.admitted(5.0)
    assert policies.rank(REQUEST, 0.0) == 5.0
    assert policies.num_faults == 1


@pytest.mark.parametrize("rank", [-2, 1.5, float("inf"), float("-inf")])
def test_every_number_is_a_rank(rank):
    policies = guard(order=answering(rank))
    assert policies.rank(REQUEST, 0.0) == rank
    assert policies.num_faults == 0


def test_the_front_is_the_highest_finite_rank_admitted():
    policies = guard(order=lambda request, arrival: arrival.front_rank)
    fronts = []
    for rank in (-1.0, 4.0, 2.0, float("inf")):
        policies.admitted(rank)
        fronts.append(policies.rank(REQUEST, 0.0))
    assert fronts == [0.0, 4.0, 4.0, 4.0]


@pytest.mark.parametrize("admission", [raises, *map(answering, [None, -1, 0.5, True, "all"])])
def test_an_admission_that_is_none_is_that_of_the_watermark(admission):
    policies = guard(admission=admission)
    assert policies.num_blocks_to_leave(None, (), POOL) == 3
    assert policies.num_faults == 1


@pytest.mark.parametrize("victim", [raises, *map(answering, [None, -1, 2, 0.0, True, "last"])])
def test_a_victim_that_is_none_is_the_last_admitted(victim):
    policies = guard(victim=victim)
    assert policies.victim(("first", "last")) == 1
    assert policies.num_faults == 1


def test_the_first_fault_of_each_policy_is_logged_and_says_what_and_why(caplog):
    policies = guard(order=answering(None), victim=raises)
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            policies.victim(("first", "last"))
            policies.rank(REQUEST, 0.0)
    assert policies.num_faults == 4
    assert [record.getMessage() for record in caplog.records] == [
        "the victim policy is at fault; the scheduler's default answers: 1",
        "the waiting order is at fault; the scheduler's default answers: 0.0",
    ]
    assert "the policy is broken" in caplog.text


def test_an_interrupt_is_not_a_fault():
    def interrupted(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guard(victim=interrupted).victim(("only",))
