from hypothesis import given
from hypothesis import strategies as st

from minivllm_scheduler import FCFS, PRIORITY, Request
from minivllm_scheduler.request import RequestState, RequestStatus
from minivllm_scheduler.waiting_queue import WaitingQueue


def waiting(arrival, priority=0, status=RequestStatus.WAITING):
    request = Request(request_id=str(arrival), prompt_token_ids=[1], max_tokens=1, priority=priority)
    state = RequestState(request, block_size=4, arrival=arrival, now=0.0)
    state.status = status
    return state


STATES = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([RequestStatus.WAITING, RequestStatus.PREEMPTED])),
    max_size=12,
).map(lambda kinds: [waiting(arrival, *kind) for arrival, kind in enumerate(kinds)])


def test_first_come_first_served_but_preempted_ones_first():
    queue = WaitingQueue(FCFS)
    for state in (waiting(2), waiting(1), waiting(4, status=RequestStatus.PREEMPTED), waiting(3)):
        queue.push(state)
    assert [state.arrival for state in queue] == [4, 1, 2, 3]
    assert queue.head().arrival == 4


def test_a_preempted_request_does_not_overtake_a_better_priority():
    queue = WaitingQueue(PRIORITY)
    for state in (waiting(0, 1), waiting(1, 0), waiting(2, 1, RequestStatus.PREEMPTED)):
        queue.push(state)
    assert [state.arrival for state in queue] == [1, 2, 0]


@given(STATES, st.randoms(use_true_random=False))
def test_any_order_of_pushes_and_removals_keeps_the_order(states, random):
    queue = WaitingQueue(PRIORITY)
    for state in random.sample(states, len(states)):
        queue.push(state)
        queue.check_invariants()
    for number, state in enumerate(random.sample(states, len(states)), 1):
        queue.remove(state)
        queue.check_invariants()
        assert len(queue) == len(states) - number
        assert state not in list(queue)
