"""WaitingQueue: requests that could be admitted, in the order of a policy."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from minivllm_scheduler.policy import WaitingOrder
from minivllm_scheduler.request import RequestState, RequestStatus

_Key = tuple[int, bool, int]


class WaitingQueue:
    """Waiting requests by (rank, preempted first, arrival).

    A sorted list: insertion and removal find their place in O(log n) and then move pointers, which for the
    thousands of requests that may wait is cheaper than any structure that avoids it.

    Args:
        order: Rank of a request; it must not change while the request waits.
    """

    def __init__(self, order: WaitingOrder) -> None:
        self._order = order
        self._entries: list[tuple[_Key, RequestState]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[RequestState]:
        return (state for _, state in self._entries)

    def push(self, state: RequestState) -> None:
        """Puts a request in its place; a preempted one goes before all of its rank that never ran."""
        insort(self._entries, (self._key(state), state))

    def head(self) -> RequestState:
        """The request to admit next; the queue must not be empty."""
        return self._entries[0][1]

    def remove(self, state: RequestState) -> None:
        """Takes a request out, wherever it is; its status must still be the one it was pushed with."""
        index = bisect_left(self._entries, (self._key(state),))
        assert self._entries[index][1] is state
        del self._entries[index]

    def check_invariants(self) -> None:
        """Asserts that every request stands where its key belongs."""
        keys = [key for key, _ in self._entries]
        assert keys == sorted(self._key(state) for state in self)

    def _key(self, state: RequestState) -> _Key:
        return self._order(state.request), state.status is not RequestStatus.PREEMPTED, state.arrival
