"""The traffic of a soak: visitors that never stop, bursts over the queue limit, and somebody who watches."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from minivllm_bench.serve.streamed_answer import HTTP_OK
from minivllm_bench.soak.bad_requests import BAD_REQUESTS
from minivllm_bench.soak.cases import Case
from minivllm_bench.soak.memory import MemorySample
from minivllm_bench.soak.server_metrics import fallen, parse_metrics
from minivllm_bench.soak.visitor import End, Visit, Visitor

_WATCH_EVERY_S = 1.0
_SLOW_PAGE_S = 10.0
_KEPT_FAULTS = 20
_WEIGHTS = {
    "whole": 30,
    "stream": 35,
    "slow reader": 5,
    "leaves": 20,
    "bad request": 10,
}
BURST = "burst"


@dataclass(slots=True)
class TrafficLog:
    """What happened.

    Attributes:
        ends: How many visits of each kind ended how.
        num_faults: How many things went wrong.
        faults: The first of them.
        samples: Memory over time.
    """

    ends: Counter[tuple[str, End]] = field(default_factory=Counter)
    num_faults: int = 0
    faults: list[str] = field(default_factory=list)
    samples: list[MemorySample] = field(default_factory=list)

    def add(self, kind: str, visit: Visit) -> None:
        """Count a visit."""
        self.ends[kind, visit.end] += 1
        if visit.fault:
            self.add_fault(f"{kind}: {visit.fault}")

    def add_fault(self, fault: str) -> None:
        """Note something that went wrong."""
        self.num_faults += 1
        if len(self.faults) < _KEPT_FAULTS:
            self.faults.append(fault)

    def count(self, end: End) -> int:
        """How many visits ended so."""
        return sum(number for (_, each), number in self.ends.items() if each is end)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficPlan:
    """How much traffic there is.

    Attributes:
        duration_s: How long visitors begin new visits.
        num_visitors: How many there are at any time.
        burst_size: Requests of a burst, all sent at once.
        burst_every_s: Time between bursts.
        seed: Of what visitors do.
    """

    duration_s: float
    num_visitors: int
    burst_size: int
    burst_every_s: float
    seed: int


class Traffic:
    """Runs a plan against a server."""

    def __init__(
        self,
        visitor: Visitor,
        cases: Sequence[Case],
        plan: TrafficPlan,
        read_memory: Callable[[], int | None],
    ) -> None:
        """Prepare the traffic.

        Args:
            visitor: Knows what each case must give.
            cases: What is asked.
            plan: How much.
            read_memory: Resident bytes of the server; None where that is unknown.
        """
        self._visitor = visitor
        self._cases = cases
        self._plan = plan
        self._read_memory = read_memory
        self._log = TrafficLog()
        self._end_s = 0.0

    async def run(self) -> TrafficLog:
        """Look at the server, go on for the planned time, then wait for the last answers."""
        metrics = await self._observe({})
        self._end_s = time.monotonic() + self._plan.duration_s
        watcher = asyncio.create_task(self._watch(metrics))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send_bursts())
            for number in range(self._plan.num_visitors):
                group.create_task(self._visit(random.Random(f"{self._plan.seed}/{number}")))  # noqa: S311
        watcher.cancel()
        await asyncio.wait([watcher])
        if not watcher.cancelled():
            watcher.result()
        return self._log

    def _is_over(self) -> bool:
        return time.monotonic() >= self._end_s

    async def _visit(self, rng: random.Random) -> None:
        while not self._is_over():
            (kind,) = rng.choices(list(_WEIGHTS), weights=list(_WEIGHTS.values()))
            visit = await self._make_visit(kind, rng)
            self._log.add(kind, visit)
            if visit.end is End.QUEUE_FULL:
                await asyncio.sleep(rng.uniform(0, 1))

    async def _make_visit(self, kind: str, rng: random.Random) -> Visit:
        case = rng.choice(self._cases)
        stream = rng.random() < 0.5
        match kind:
            case "bad request":
                return await self._visitor.misbehave(rng.choice(BAD_REQUESTS))
            case "leaves":
                return await self._visitor.leave(
                    case, stream=stream, after_pieces=rng.randint(1, 8), within_s=rng.uniform(0, 2)
                )
            case "slow reader":
                return await self._visitor.ask(case, stream=True, slowly=True)
        salt = str(rng.random()) if rng.random() < 0.5 else None
        return await self._visitor.ask(case, stream=kind == "stream", cache_salt=salt)

    async def _send_bursts(self) -> None:
        rng = random.Random(f"{self._plan.seed}/{BURST}")  # noqa: S311
        while not self._is_over():
            cases = rng.choices(self._cases, k=self._plan.burst_size)
            visits = [self._visitor.ask(case, stream=rng.random() < 0.5) for case in cases]
            for visit in await asyncio.gather(*visits):
                self._log.add(BURST, visit)
            await asyncio.sleep(min(self._plan.burst_every_s, max(self._end_s - time.monotonic(), 0)))

    async def _watch(self, metrics: dict[str, float]) -> None:
        while True:
            await asyncio.sleep(_WATCH_EVERY_S)
            metrics = await self._observe(metrics)

    async def _observe(self, before: dict[str, float]) -> dict[str, float]:
        """Is the server healthy and quick to say so, does a counter fall, how much memory is used."""
        begun_s = time.monotonic()
        metrics = await self._look(before)
        now_s = time.monotonic()
        if now_s - begun_s > _SLOW_PAGE_S:
            self._log.add_fault(f"/health and /metrics took {now_s - begun_s:.1f} s")
        used = self._read_memory()
        if used is not None:
            self._log.samples.append(MemorySample(now_s, used))
        return metrics

    async def _look(self, before: dict[str, float]) -> dict[str, float]:
        try:
            health = await self._visitor.get("/health")
            page = await self._visitor.get("/metrics")
        except (OSError, ValueError) as error:
            self._log.add_fault(f"/health or /metrics: {type(error).__name__}: {error}")
            return before
        if health.status != HTTP_OK:
            self._log.add_fault(f"/health: status {health.status}")
        if page.status != HTTP_OK:
            return before
        after = parse_metrics(page.body.decode())
        for name in fallen(before, after):
            self._log.add_fault(f"/metrics: {name} fell")
        return after
