from typing import NamedTuple

from minivllm_scheduler import FCFS, LEAST_COMPUTED, LIFO, PRIORITY, Request


class Candidate(NamedTuple):
    request: Request
    num_computed_tokens: int


def request(priority=0):
    return Request(request_id="a", prompt_token_ids=[1], max_tokens=1, priority=priority)


def candidates(*num_computed_tokens):
    return [Candidate(request(), count) for count in num_computed_tokens]


def test_fcfs_ranks_all_alike_and_priority_by_the_smallest():
    assert FCFS(request(3)) == FCFS(request(-3))
    assert PRIORITY(request(-3)) < PRIORITY(request(0)) < PRIORITY(request(3))


def test_lifo_takes_the_last_admitted():
    assert LIFO(candidates(9, 1, 5)) == 2


def test_least_computed_takes_the_cheapest_and_of_equals_the_last():
    assert LEAST_COMPUTED(candidates(9, 1, 5)) == 1
    assert LEAST_COMPUTED(candidates(4, 2, 2, 8)) == 2
