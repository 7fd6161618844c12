"""The two choices a scheduler leaves open: who waits in front, and who is preempted.

Both are plain functions, so a new policy is a function passed to `Scheduler`.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from minivllm_scheduler.request import Request

WaitingOrder = Callable[[Request], int]
"""Rank of a request: the smallest waits in front. Equal ranks: preempted requests first, then by arrival."""


class RunningRequest(Protocol):
    """What a victim policy may know of a running request."""

    @property
    def request(self) -> Request:
        """What was asked for."""

    @property
    def num_computed_tokens(self) -> int:
        """Tokens to compute again if it is preempted, where the prefix cache does not keep them."""


VictimPolicy = Callable[[Sequence[RunningRequest]], int]
"""Index of the request to preempt, among at least one candidate in order of admission.

The scheduler offers only requests admitted after the one that needs room. So the oldest running request is
never a victim, nor one that already has a row in the step.
"""


def by_arrival(request: Request) -> int:  # noqa: ARG001 - every request ranks the same
    """First come, first served."""
    return 0


def by_priority(request: Request) -> int:
    """Smallest `priority` first."""
    return request.priority


def last_admitted(candidates: Sequence[RunningRequest]) -> int:
    """The request that has had the least time to run."""
    return len(candidates) - 1


def least_computed(candidates: Sequence[RunningRequest]) -> int:
    """The request that loses the fewest computed tokens; of equals, the last admitted."""
    return min(range(len(candidates)), key=lambda index: (candidates[index].num_computed_tokens, -index))


FCFS: Final[WaitingOrder] = by_arrival
PRIORITY: Final[WaitingOrder] = by_priority
LIFO: Final[VictimPolicy] = last_admitted
LEAST_COMPUTED: Final[VictimPolicy] = least_computed
