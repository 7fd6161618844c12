"""The choices a scheduler leaves open: who waits in front, who is admitted, and who is preempted.

Each is a plain function, or an object that is called like one. The scheduler asks, checks the answer, and takes
its own default where a policy raises or answers nonsense (`policy_guard`); so a policy decides how good a
schedule is, never whether there is progress.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from minivllm_scheduler.errors import InvalidConfig
from minivllm_scheduler.request import Request
from minivllm_scheduler.request_view import RequestView


class Arrival(NamedTuple):
    """When a request was added.

    Attributes:
        time_s: In seconds of the scheduler's clock.
        front_rank: Highest rank of the requests admitted so far: in an order whose ranks only grow, where the
            queue has got to. 0 at first.
    """

    time_s: float
    front_rank: float


class Pool(NamedTuple):
    """The KV blocks at the time of an admission.

    Attributes:
        num_blocks: All of them.
        block_size: Tokens per block.
    """

    num_blocks: int
    block_size: int

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that so many tokens of one request take."""
        return -(-num_tokens // self.block_size)


WaitingOrder = Callable[[Request, Arrival], float]
"""Rank of a request, asked once, when it is added: the smallest waits in front.

Equal ranks: preempted requests first, then by arrival. Whatever the ranks, the request that has waited longest is
overtaken at most `SchedulerConfig.max_overtaking` times.
"""

AdmissionPolicy = Callable[[RequestView, Sequence[RequestView], Pool], int]
"""Blocks to leave free when a candidate is admitted beside the running requests.

That many must be free once all known tokens of the candidate have their blocks; else it waits. An answer above the
size of the pool refuses it for now. Not asked when nothing runs: then the candidate is admitted.
"""

VictimPolicy = Callable[[Sequence[RequestView]], int]
"""Index of the request to preempt, among at least one candidate in order of admission.

The scheduler offers only requests admitted after the one that needs room. So the oldest running request is
never a victim, nor one that already has a row in the step.
"""


def by_arrival(request: Request, arrival: Arrival) -> float:  # noqa: ARG001 - every request ranks the same
    """First come, first served."""
    return 0.0


@dataclass(frozen=True, slots=True)
class PriorityWithAgeing:
    """Smallest `priority` first, where one level of priority is worth a head start of `ageing_s` seconds.

    A request overtakes those that were added at most `ageing_s` times the difference of the priorities before
    it. So a request of priority p waits for no request of priority q < p that is added more than
    (p - q) · ageing_s after it. Since all waiting requests age alike, their order never changes.

    Attributes:
        ageing_s: In seconds, not negative. 0 is first come, first served.

    Raises:
        InvalidConfig: `ageing_s` is negative or not finite.
    """

    ageing_s: float = 30.0

    def __post_init__(self) -> None:
        if not 0 <= self.ageing_s < float("inf"):
            raise InvalidConfig(f"ageing_s is {self.ageing_s}, it must be finite and at least 0")

    def __call__(self, request: Request, arrival: Arrival) -> float:
        """Returns the time at which a request of priority 0 would have had to arrive for the same place."""
        return arrival.time_s + request.priority * self.ageing_s


@dataclass(frozen=True, slots=True)
class Watermark:
    """Leaves a share of the pool free, so that running requests can grow before one must be preempted.

    Attributes:
        share: Of the pool's blocks, in [0, 1).

    Raises:
        InvalidConfig: `share` is outside its limits.
    """

    share: float

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise InvalidConfig(f"watermark is {self.share}, it must lie in [0, 1)")

    def __call__(self, candidate: RequestView, running: Sequence[RequestView], pool: Pool) -> int:  # noqa: ARG002
        """Returns the share in blocks, rounded down."""
        return int(self.share * pool.num_blocks)


def all_that_may_grow(candidate: RequestView, running: Sequence[RequestView], pool: Pool) -> int:
    """Room for the prompt and `max_tokens` of everybody: where all are admitted like this, none is preempted."""
    blocks = pool.num_blocks_for
    promised = sum(blocks(view.max_kv_tokens) - blocks(view.num_computed_tokens) for view in running)
    return promised + blocks(candidate.max_kv_tokens) - blocks(candidate.num_known_tokens)


def last_admitted(candidates: Sequence[RequestView]) -> int:
    """The request that has had the least time to run."""
    return len(candidates) - 1


def least_computed(candidates: Sequence[RequestView]) -> int:
    """The request that loses the fewest computed tokens; of equals, the last admitted."""
    return min(range(len(candidates)), key=lambda index: (candidates[index].num_computed_tokens, -index))


def least_cost_for_room(candidates: Sequence[RequestView]) -> int:
    """The request that loses the fewest computed tokens for the room it gives; of equals, the last admitted.

    The loss is what nobody else keeps: tokens in blocks that it holds alone. The room is those blocks times the
    tokens for which it would go on holding them. So a request that is about to end by itself, or that shares
    all its blocks, is spared.
    """

    def cost(index: int) -> tuple[float, int]:
        view = candidates[index]
        num_freed = view.num_exclusive_blocks
        if num_freed == 0:
            return float("inf"), -index
        num_lost = view.num_computed_tokens - (view.num_blocks - num_freed) * view.block_size
        return num_lost / (num_freed * view.num_remaining_tokens), -index

    return min(range(len(candidates)), key=cost)


FCFS: Final[WaitingOrder] = by_arrival
PRIORITY: Final[WaitingOrder] = PriorityWithAgeing()
RESERVE_ALL: Final[AdmissionPolicy] = all_that_may_grow
LIFO: Final[VictimPolicy] = last_admitted
LEAST_COMPUTED: Final[VictimPolicy] = least_computed
COST_AWARE: Final[VictimPolicy] = least_cost_for_room
