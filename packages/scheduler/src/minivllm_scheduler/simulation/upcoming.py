"""UpcomingRequests: what a traffic still has to send, soonest first."""

from collections.abc import Iterator

from minivllm_scheduler.request import Request
from minivllm_scheduler.simulation.errors import InvalidWorkload
from minivllm_scheduler.simulation.event_heap import EventHeap
from minivllm_scheduler.simulation.traffic import TimedRequest, Traffic


class UpcomingRequests:
    """The requests of a traffic in the order of their times: those that come anyway, and those that follow an answer.

    Those that come anyway are drawn one at a time, so a million of them need no memory.

    Args:
        traffic: Used up by this.

    Raises:
        InvalidWorkload: The first request arrives before 0 s or at no finite time.
    """

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._arrivals = traffic.arrivals()
        self._heap: EventHeap[TimedRequest] = EventHeap()
        self._next_arrival: TimedRequest | None = None
        self._draw_arrival(0.0)

    @property
    def next_time_s(self) -> float | None:
        """When the next request arrives; None if no more is known to come."""
        return self._heap.next_time_s() if self._heap else None

    def take_due(self, now_s: float) -> Iterator[TimedRequest]:
        """Takes the requests that have arrived by now, those included that follow while this goes on.

        Raises:
            InvalidWorkload: The traffic is not in order of time.
        """
        while self._heap and self._heap.next_time_s() <= now_s:
            arrival = self._heap.pop()
            if arrival is self._next_arrival:
                self._draw_arrival(arrival.time_s)
            yield arrival

    def ended(self, request: Request, now_s: float) -> None:
        """A request ended or was refused, which may let another one follow."""
        following = self._traffic.follow_up(request, now_s)
        if following is not None:
            self._heap.push(following.time_s, following)

    def _draw_arrival(self, previous_s: float) -> None:
        self._next_arrival = arrival = next(self._arrivals, None)
        if arrival is None:
            return
        if not previous_s <= arrival.time_s < float("inf"):
            raise InvalidWorkload(
                f"request {arrival.request.request_id!r} arrives at {arrival.time_s} s, "
                f"after one at {previous_s} s"
            )
        self._heap.push(arrival.time_s, arrival)
