"""WaitingQueue: requests that could be admitted, by rank, and none of them passed over for ever."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from minivllm_scheduler.request import RequestState, RequestStatus

_Key = tuple[float, bool, int]


class WaitingQueue:
    """Waiting requests by (rank, preempted first, arrival).

    Sorted lists: insertion and removal find their place in O(log n) and then move pointers, which for the
    thousands of requests that may wait is cheaper than any structure that avoids it.

    Ranks may let newer requests pass older ones. But once `max_overtaking` requests in a row were taken while the
    oldest one waited, that one is the head. So a request with k older ones before it is head after
    at most (k + 1) · (max_overtaking + 1) - 1 others were taken, whatever the ranks.

    Args:
        max_overtaking: Requests that may be taken before the oldest.
    """

    def __init__(self, max_overtaking: int) -> None:
        self._max_overtaking = max_overtaking
        self._entries: list[tuple[_Key, RequestState]] = []
        self._by_arrival: list[tuple[int, RequestState]] = []
        # Requests taken since the oldest one was last removed. One that is pushed and older still, because it was
        # preempted, is the oldest from then on and inherits the count: its turn comes the sooner.
        self._num_overtaking = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[RequestState]:
        return (state for _, state in self._entries)

    @property
    def oldest(self) -> RequestState | None:
        """The request that was added first; None if none waits."""
        return self._by_arrival[0][1] if self._by_arrival else None

    def push(self, state: RequestState) -> None:
        """Puts a request in its place; a preempted one goes before all of its rank that never ran."""
        insort(self._entries, (_key(state), state))
        insort(self._by_arrival, (state.arrival, state))

    def head(self) -> RequestState:
        """The request to admit next; the queue must not be empty."""
        if self._num_overtaking >= self._max_overtaking:
            return self._by_arrival[0][1]
        return self._entries[0][1]

    def take_head(self) -> RequestState:
        """Removes the head, because it is admitted."""
        head = self.head()
        self._num_overtaking += 1
        self.remove(head)
        return head

    def remove(self, state: RequestState) -> None:
        """Takes a request out, wherever it is; its status must still be the one it was pushed with."""
        index = bisect_left(self._entries, (_key(state),))
        assert self._entries[index][1] is state
        del self._entries[index]
        index = bisect_left(self._by_arrival, (state.arrival,))
        del self._by_arrival[index]
        if index == 0:
            self._num_overtaking = 0

    def check_invariants(self) -> None:
        """Asserts that every request stands where its key and its arrival belong."""
        assert [key for key, _ in self._entries] == sorted(_key(state) for state in self)
        assert [arrival for arrival, _ in self._by_arrival] == sorted(state.arrival for state in self)
        assert self._num_overtaking <= self._max_overtaking


def _key(state: RequestState) -> _Key:
    return state.rank, state.status is not RequestStatus.PREEMPTED, state.arrival
