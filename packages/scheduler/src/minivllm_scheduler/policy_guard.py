"""PolicyGuard: takes policies' answers, and puts a sound one in place of any that is none."""

import logging
import math
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from minivllm_scheduler.policy import AdmissionPolicy, Arrival, Pool, VictimPolicy, WaitingOrder
from minivllm_scheduler.request import Request
from minivllm_scheduler.request_view import RequestView

_logger: Final = logging.getLogger(__name__)
_Answer = TypeVar("_Answer", int, float)


class PolicyGuard:
    """The policies of one scheduler, none of which can raise or answer nonsense.

    A fault, an exception or an answer of the wrong type or range, is counted, and answered in the policy's place:
    a rank by the front of the queue, an admission by the watermark, a victim by LIFO. The first fault of each policy
    is logged.

    Args:
        order: Ranks requests.
        admission: Says how many blocks to leave free.
        victim: Chooses whom to preempt.
        watermark_blocks: Blocks to leave free when `admission` is at fault.
    """

    def __init__(
        self, order: WaitingOrder, admission: AdmissionPolicy, victim: VictimPolicy, watermark_blocks: int
    ) -> None:
        self._order = order
        self._admission = admission
        self._victim = victim
        self._watermark_blocks = watermark_blocks
        self._front_rank = 0.0
        self._num_faults = 0
        self._logged: set[str] = set()  # policies that were at fault

    @property
    def num_faults(self) -> int:
        """Answers that were replaced so far."""
        return self._num_faults

    def rank(self, request: Request, now: float) -> float:
        """Rank of a request that is being added; a number, possibly infinite."""
        arrival = Arrival(now, self._front_rank)
        return self._ask(
            lambda: _checked_rank(self._order(request, arrival)), "waiting order", arrival.front_rank
        )

    def admitted(self, rank: float) -> None:
        """Takes note that a request of this rank starts to run."""
        if self._front_rank < rank < math.inf:
            self._front_rank = rank

    def num_blocks_to_leave(self, candidate: RequestView, running: Sequence[RequestView], pool: Pool) -> int:
        """Blocks to leave free when `candidate` is admitted; not negative."""
        return self._ask(
            lambda: _checked_int(self._admission(candidate, running, pool), None),
            "admission policy",
            self._watermark_blocks,
        )

    def victim(self, candidates: Sequence[RequestView]) -> int:
        """Index of the candidate to preempt."""
        last = len(candidates) - 1
        return self._ask(lambda: _checked_int(self._victim(candidates), last), "victim policy", last)

    def _ask(self, question: Callable[[], _Answer], name: str, default: _Answer) -> _Answer:
        try:
            return question()
        except Exception:  # whatever a policy does, the step goes on
            if name not in self._logged:
                self._logged.add(name)
                _logger.exception("the %s is at fault; the scheduler's default answers: %r", name, default)
            self._num_faults += 1
            return default


def _checked_rank(rank: float) -> float:
    if not isinstance(rank, int | float) or isinstance(rank, bool) or math.isnan(rank):
        raise TypeError(f"the rank is {rank!r}, it must be a number")
    return float(rank)


def _checked_int(answer: int, largest: int | None) -> int:
    if not isinstance(answer, int) or isinstance(answer, bool):
        raise TypeError(f"the answer is {answer!r}, it must be an int")
    if answer < 0 or (largest is not None and answer > largest):
        limit = "" if largest is None else f" and at most {largest}"
        raise ValueError(f"the answer is {answer}, it must be at least 0{limit}")
    return answer
