from hypothesis import given
from hypothesis import strategies as st

from minivllm_scheduler.simulation.event_heap import EventHeap


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.5])))
def test_events_come_out_by_time_and_then_by_arrival(times):
    heap = EventHeap()
    for number, time_s in enumerate(times):
        heap.push(time_s, (time_s, number))
    popped = []
    while heap:
        next_s = heap.next_time_s()
        popped.append(heap.pop())
        assert popped[-1][0] == next_s
    assert popped == sorted((time_s, number) for number, time_s in enumerate(times))
