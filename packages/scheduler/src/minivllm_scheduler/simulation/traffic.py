"""Where requests come from: the interface between workloads, traces and the simulator."""

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from minivllm_scheduler.request import TOKEN_ID_LIMIT, Request

SAMPLED_TOKEN_ID: Final = 0
"""The id that simulated steps sample; no prompt contains it except as an earlier answer."""
STOP_TOKEN_ID: Final = 1
"""The id that ends a simulated request before its `max_tokens`; it stands in no prompt either."""


class TimedRequest(NamedTuple):
    """A request, and when it reaches the engine.

    Attributes:
        time_s: Seconds since the start of the simulation.
        request: It ends with its `max_tokens`-th token, unless it is stopped before.
        stops_after: Output tokens, at most `max_tokens`, of which the last is `STOP_TOKEN_ID`; it must be one of the
            request's stop ids. None: nothing stops it.
    """

    time_s: float
    request: Request
    stops_after: int | None = None

    @property
    def num_output_tokens(self) -> int:
        """Length of the answer."""
        return self.stops_after or self.request.max_tokens


class Traffic(Protocol):
    """The requests of one run. Used up by it."""

    def arrivals(self) -> Iterator[TimedRequest]:
        """Requests that come whatever the engine does, in order of time."""

    def follow_up(self, request: Request, now_s: float) -> TimedRequest | None:
        """What arrives because `request` ended or was refused at `now_s`; not before `now_s`."""


class Workload(Protocol):
    """A description of requests that can be run any number of times, always alike."""

    @property
    def num_requests(self) -> int:
        """Requests in a run."""

    def start(self) -> Traffic:
        """The requests, from the beginning."""


FIRST_FRESH_ID: Final = max(SAMPLED_TOKEN_ID, STOP_TOKEN_ID) + 1


class FreshTokenIds:
    """Hands out runs of token ids that have not been used before, so that no two share a prefix by chance.

    After about four billion ids it starts again, when the first ones are long forgotten.
    """

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = FIRST_FRESH_ID

    def take(self, num_tokens: int) -> range:
        """The next `num_tokens` ids."""
        if self._next + num_tokens > TOKEN_ID_LIMIT:
            self._next = FIRST_FRESH_ID
        ids = range(self._next, self._next + num_tokens)
        self._next += num_tokens
        return ids
