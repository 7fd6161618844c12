"""FairShare: tenants that wait get tokens in proportion to their weights."""

from collections.abc import Mapping

from minivllm_scheduler.errors import InvalidConfig
from minivllm_scheduler.policy import Arrival
from minivllm_scheduler.request import Request


class FairShare:
    """Start-time fair queueing over the tenants of the requests.

    Each tenant has a clock of its own, which every request moves on by its cost, prompt and `max_tokens`, over the
    tenant's weight. A request is ranked by its tenant's clock before that. A tenant that was idle starts
    again where the queue has got to: it neither saves up a claim nor pays for having been alone. While two
    tenants wait, the tokens admitted for them, each over its weight, differ at most by the largest cost of one's
    requests over its weight plus that of the other's (Goyal, Vin and Cheng, *Start-time Fair Queuing*, SIGCOMM 1996).

    An object keeps the clocks of one scheduler: make one for each.

    Args:
        weights: By tenant, each positive; the weight of those not named is 1.

    Raises:
        InvalidConfig: A weight is not positive.
    """

    __slots__ = ("_clocks", "_weights")

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self._weights = dict(weights or {})
        for tenant, weight in self._weights.items():
            if not 0 < weight < float("inf"):
                raise InvalidConfig(
                    f"the weight of tenant {tenant!r} is {weight}, it must be positive and finite"
                )
        self._clocks: dict[str, float] = {}

    def __call__(self, request: Request, arrival: Arrival) -> float:
        """Returns the start of the request on its tenant's clock, and moves the clock on."""
        start = max(arrival.front_rank, self._clocks.pop(request.tenant, 0.0))
        self._forget_idle(arrival.front_rank)
        cost = len(request.prompt_token_ids) + request.max_tokens
        self._clocks[request.tenant] = start + cost / self._weights.get(request.tenant, 1.0)
        return start

    def _forget_idle(self, front_rank: float) -> None:
        """Drops the clocks that the queue has passed: a tenant that comes back starts at the front anyway."""
        while self._clocks:
            tenant, clock = next(iter(self._clocks.items()))  # of the tenant that sent nothing for longest
            if clock > front_rank:
                return
            del self._clocks[tenant]
