"""What is still going to happen, soonest first."""

import heapq
from typing import Generic, TypeVar

T = TypeVar("T")


class EventHeap(Generic[T]):
    """Events by time; those of one moment come out in the order in which they went in."""

    __slots__ = ("_entries", "_num_pushed")

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, T]] = []
        self._num_pushed = 0

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, time_s: float, event: T) -> None:
        """Lets `event` happen at `time_s`."""
        heapq.heappush(self._entries, (time_s, self._num_pushed, event))
        self._num_pushed += 1

    def next_time_s(self) -> float:
        """When the next event happens; there must be one."""
        return self._entries[0][0]

    def pop(self) -> T:
        """Takes out the next event; there must be one."""
        return heapq.heappop(self._entries)[2]
