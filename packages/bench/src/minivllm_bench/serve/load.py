"""How requests arrive: so many streams that never pause, or a rate that waits for nobody; and who sends which."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from minivllm_bench.errors import InvalidSetting
from minivllm_bench.serve.endpoint import Endpoint
from minivllm_bench.workloads import BenchRequest
from minivllm_scheduler.simulation import PoissonArrivals


@dataclass(frozen=True, slots=True)
class Streams:
    """A closed loop: each stream sends its next request when it has the whole answer to the last one.

    Raises:
        InvalidSetting: there is no stream.
    """

    num_streams: int

    def __post_init__(self) -> None:
        if self.num_streams < 1:
            raise InvalidSetting(f"concurrency must be at least 1, got {self.num_streams}")

    def __str__(self) -> str:
        return f"{self.num_streams} stream{'s' * (self.num_streams > 1)}"


@dataclass(frozen=True, slots=True)
class RequestRate:
    """An open loop: requests arrive as a Poisson process, however many are open.

    Raises:
        InvalidSetting: the rate is not positive or not finite.
    """

    requests_per_s: float

    def __post_init__(self) -> None:
        if not 0 < self.requests_per_s < float("inf"):
            raise InvalidSetting(f"a request rate must be positive and finite, got {self.requests_per_s}")

    def __str__(self) -> str:
        return f"{self.requests_per_s:g} requests/s"


Load = Streams | RequestRate


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one client process sends.

    Attributes:
        endpoint: Whom to ask.
        model: The name in each request.
        requests: In the order of sending.
        num_streams: How many streams of a closed loop send them.
        arrivals_s: In an open loop, when each is due, in seconds after the start; None in a closed one.
        timeout_s: Longest wait for a whole answer.
    """

    endpoint: Endpoint
    model: str
    requests: tuple[BenchRequest, ...]
    num_streams: int
    arrivals_s: tuple[float, ...] | None
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTarget:
    """Whom to ask, and how long to wait; see `Share`."""

    endpoint: Endpoint
    model: str
    timeout_s: float


def split(
    load: Load, requests: Sequence[BenchRequest], target: LoadTarget, *, num_processes: int, seed: str
) -> tuple[Share, ...]:
    """Deal requests out to client processes; one that would have nothing to do is left out.

    Args:
        load: How they arrive.
        requests: Of the whole run.
        target: Whom to ask.
        num_processes: Most shares.
        seed: Of the arrivals of an open loop.
    """
    arrivals_s = _arrivals(load, len(requests), seed) if isinstance(load, RequestRate) else None
    num_streams = load.num_streams if isinstance(load, Streams) else len(requests)
    num_lanes = min(num_streams, len(requests))
    num_shares = min(num_processes, num_lanes)
    shares: list[Share] = []
    for index in range(num_shares):
        mine = [i for i in range(len(requests)) if i % num_lanes % num_shares == index]
        shares.append(
            Share(
                endpoint=target.endpoint,
                model=target.model,
                requests=tuple(requests[i] for i in mine),
                num_streams=len(range(index, num_lanes, num_shares)),
                arrivals_s=None if arrivals_s is None else tuple(arrivals_s[i] for i in mine),
                timeout_s=target.timeout_s,
            )
        )
    return tuple(shares)


def _arrivals(load: RequestRate, count: int, seed: str) -> tuple[float, ...]:
    """When each of `count` requests is due; the first one at once."""
    rng = random.Random(seed)  # noqa: S311 - reproducible on purpose
    return (0.0, *islice(PoissonArrivals(load.requests_per_s).times_s(rng), count - 1))
