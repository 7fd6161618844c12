import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_scheduler import Request
from minivllm_scheduler.request import RequestState, RequestStatus
from minivllm_scheduler.waiting_queue import WaitingQueue


def waiting(arrival, rank=0.0, status=RequestStatus.WAITING):
    request = Request(request_id=str(arrival), prompt_token_ids=[1], max_tokens=1)
    state = RequestState(request, block_size=4, arrival=arrival, now=0.0, rank=rank)
    state.status = status
    return state


STATES = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.5, 1.0, float("inf"), float("-inf")]),
        st.sampled_from([RequestStatus.WAITING, RequestStatus.PREEMPTED]),
    ),
    max_size=12,
).map(lambda kinds: [waiting(arrival, *kind) for arrival, kind in enumerate(kinds)])


def test_by_arrival_among_equal_ranks_but_preempted_ones_first():
    queue = WaitingQueue(max_overtaking=9)
    for state in (waiting(2), waiting(1), waiting(4, status=RequestStatus.PREEMPTED), waiting(3)):
        queue.push(state)
    assert [state.arrival for state in queue] == [4, 1, 2, 3]
    assert queue.head().arrival == 4


def test_a_preempted_request_does_not_overtake_a_better_rank():
    queue = WaitingQueue(max_overtaking=9)
    for state in (waiting(0, 1), waiting(1, 0), waiting(2, 1, RequestStatus.PREEMPTED)):
        queue.push(state)
    assert [state.arrival for state in queue] == [1, 2, 0]


@given(STATES, st.randoms(use_true_random=False))
def test_any_order_of_pushes_and_removals_keeps_the_order(states, random):
    queue = WaitingQueue(max_overtaking=3)
    for state in random.sample(states, len(states)):
        queue.push(state)
        queue.check_invariants()
    for number, state in enumerate(random.sample(states, len(states)), 1):
        queue.remove(state)
        queue.check_invariants()
        assert len(queue) == len(states) - number
        assert state not in list(queue)


@pytest.mark.parametrize("max_overtaking", [0, 1, 3])
def test_an_endless_stream_of_better_ranks_passes_the_oldest_only_so_often(max_overtaking):
    queue = WaitingQueue(max_overtaking)
    for arrival in range(3):
        queue.push(waiting(arrival, rank=100.0 - arrival))
    taken = []
    for arrival in range(3, 20):
        queue.push(waiting(arrival, rank=-1.0))
        taken.append(queue.take_head().arrival)
        queue.check_invariants()
    assert [taken.index(arrival) for arrival in range(3)] == [
        (k + 1) * (max_overtaking + 1) - 1 for k in range(3)
    ]


def test_aborting_the_oldest_starts_the_count_again():
    queue = WaitingQueue(max_overtaking=1)
    states = [waiting(0, rank=9.0), waiting(1, rank=9.0), waiting(2), waiting(3)]
    for state in states:
        queue.push(state)
    assert queue.take_head() is states[2]
    assert queue.head() is states[0]
    queue.remove(states[0])
    assert queue.head() is states[3]


@given(STATES.filter(bool), st.integers(0, 4))
def test_without_newcomers_the_bound_holds_whatever_the_ranks(states, max_overtaking):
    queue = WaitingQueue(max_overtaking)
    for state in states:
        queue.push(state)
    taken = [queue.take_head().arrival for _ in states]
    assert sorted(taken) == list(range(len(states)))
    for arrival in taken:
        assert taken.index(arrival) <= (arrival + 1) * (max_overtaking + 1) - 1


def test_the_oldest_is_the_one_added_first_whatever_its_rank():
    queue = WaitingQueue(max_overtaking=9)
    assert queue.oldest is None
    states = [waiting(0, 3.0), waiting(1, 0.0), waiting(2, 1.0)]
    for state in states:
        queue.push(state)
    assert queue.oldest is states[0]
    queue.remove(states[0])
    assert queue.oldest is states[1]
