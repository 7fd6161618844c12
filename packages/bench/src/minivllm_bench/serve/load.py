"""How requests arrive: so many streams that never pause, or a rate that waits for nobody; and who sends which."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from minivllm_bench.errors import InvalidSetting
from minivllm_bench.serve.endpoint import Endpoint
from minivllm_bench.workloads import BenchRequest


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """Each stream sends its next request when it has the whole answer to the last one.

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
class OpenLoop:
    """Requests arrive as a Poisson process, however many are open.

    Raises:
        InvalidSetting: the rate is not positive.
    """

    requests_per_s: float

    def __post_init__(self) -> None:
        if not self.requests_per_s > 0:
            raise InvalidSetting(f"a request rate must be positive, got {self.requests_per_s}")

    def __str__(self) -> str:
        return f"{self.requests_per_s:g} requests/s"


Load = ClosedLoop | OpenLoop


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
    arrivals_s = _arrivals(load.requests_per_s, len(requests), seed) if isinstance(load, OpenLoop) else None
    num_streams = load.num_streams if isinstance(load, ClosedLoop) else len(requests)
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


def _arrivals(requests_per_s: float, count: int, seed: str) -> list[float]:
    rng = random.Random(seed)  # noqa: S311 - reproducible on purpose
    arrivals_s: list[float] = []
    now = 0.0
    for _ in range(count):
        arrivals_s.append(now)
        now += rng.expovariate(requests_per_s)
    return arrivals_s
