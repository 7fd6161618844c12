"""LiveEngine: minivllm's engine in this process, serving a workload in real time."""

import asyncio
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from minivllm_bench.engines.interface import EngineSettings
from minivllm_bench.errors import EngineFailed
from minivllm_bench.live.live_report import LiveReport
from minivllm_bench.live.pass_times import PassTimes
from minivllm_runtime.config import EngineConfig
from minivllm_runtime.engine.async_engine import AsyncEngine
from minivllm_runtime.engine.builder import build_engine
from minivllm_runtime.errors import MinivllmError
from minivllm_runtime.sampling_params import SamplingParams
from minivllm_scheduler import Request
from minivllm_scheduler.recording import Event, Setup
from minivllm_scheduler.simulation import (
    Distribution,
    MeasuredStep,
    SimulatedEngine,
    TimedRequest,
    Traffic,
    Workload,
)


class LiveEngine:
    """The asynchronous engine with default settings, in order, and its passes timed.

    Args:
        engine: Not started.
        setup: How its scheduler was built.
        times: What listens to that scheduler.
    """

    def __init__(self, engine: AsyncEngine, setup: Setup, times: PassTimes) -> None:
        self._engine = engine
        self._setup = setup
        self._times = times
        self._num_runs = 0

    @classmethod
    def load(cls, settings: EngineSettings) -> Self:
        """Build the engine.

        Raises:
            EngineFailed: the model cannot be served.
        """
        times = PassTimes()
        setups: list[Setup] = []

        def record(event: Event) -> None:
            if isinstance(event, Setup):
                setups.append(event)
            else:
                times.record(event)

        try:
            config = EngineConfig(
                model=settings.model,
                dtype=settings.dtype,
                device=settings.device,
                num_threads=settings.num_threads,
                run_ahead=False,
            )
            engine = AsyncEngine(build_engine(config, record=record))
        except MinivllmError as error:
            raise EngineFailed(f"minivllm cannot load {settings.model}: {error}") from error
        return cls(engine, setups[0], times)

    @property
    def simulated(self) -> SimulatedEngine:
        """The same engine for the simulator: its limits, its pool, its step loop."""
        return SimulatedEngine(
            config=self._setup.config,
            num_blocks=self._setup.num_blocks,
            block_size=self._setup.block_size,
            prefix_caching=self._setup.prefix_caching,
            run_ahead=self._setup.run_ahead,
        )

    @asynccontextmanager
    async def started(self) -> AsyncIterator[Self]:
        """Run the engine's thread; once in the life of this object."""
        await self._engine.start()
        try:
            yield self
        finally:
            await self._engine.shutdown()

    async def serve(self, workload: Workload) -> LiveReport:
        """Send the requests when the workload says so, take their tokens, and wait for the last one.

        Raises:
            EngineFailed: a request was refused or failed.
        """
        self._num_runs += 1
        run = _Run(self._engine, workload.start(), f"run {self._num_runs}")
        try:
            await run.to_the_end()
        except* MinivllmError as group:
            raise EngineFailed(f"minivllm: {group.exceptions[0]}") from group
        return run.report()

    def take_steps(self) -> tuple[MeasuredStep, ...]:
        """Load and time of the passes since the last call."""
        return self._times.take()


class _Run:
    """One workload under way."""

    def __init__(self, engine: AsyncEngine, traffic: Traffic, name: str) -> None:
        self._engine = engine
        self._traffic = traffic
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._start_s = self._loop.time()
        self._ttft_s = array("d")
        self._tpot_s = array("d")
        self._latency_s = array("d")
        self._num_output_tokens = 0
        self._last_token_s = 0.0

    async def to_the_end(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for arrival in self._traffic.arrivals():
                await self._wait_until(arrival.time_s)
                tasks.create_task(self._follow(arrival, tasks))

    async def _follow(self, arrival: TimedRequest, tasks: asyncio.TaskGroup) -> None:
        await self._wait_until(arrival.time_s)
        await self._serve(arrival)
        following = self._traffic.follow_up(arrival.request, self._now_s())
        if following is not None:
            tasks.create_task(self._follow(following, tasks))

    async def _serve(self, arrival: TimedRequest) -> None:
        request = arrival.request
        submission = await self._engine.submit(
            [self._ids_of(request)],
            SamplingParams(temperature=0.0, max_tokens=request.max_tokens, ignore_eos=True),
            request_id=f"{self._name}/{request.request_id}",
        )
        first_s: float | None = None
        async for deltas in submission:
            first_s = first_s or self._now_s()
            self._num_output_tokens += sum(len(delta.token_ids) for delta in deltas)
        assert first_s is not None, "a request that did not fail has a token"
        self._last_token_s = now_s = self._now_s()
        self._ttft_s.append(first_s - arrival.time_s)
        self._latency_s.append(now_s - arrival.time_s)
        if request.max_tokens > 1:
            self._tpot_s.append((now_s - first_s) / (request.max_tokens - 1))

    def _ids_of(self, request: Request) -> tuple[int, ...]:
        """The prompt with ids that the model has: what differs for the simulator nearly always differs here too."""
        vocab_size = self._engine.model_config.vocab_size
        return tuple(token_id % vocab_size for token_id in request.prompt_token_ids)

    def _now_s(self) -> float:
        return self._loop.time() - self._start_s

    async def _wait_until(self, time_s: float) -> None:
        delay_s = time_s - self._now_s()
        if delay_s > 0:
            await asyncio.sleep(delay_s)

    def report(self) -> LiveReport:
        return LiveReport(
            num_finished=len(self._latency_s),
            duration_s=self._last_token_s,
            output_tokens_per_s=self._num_output_tokens / self._last_token_s,
            ttft_s=Distribution.of(self._ttft_s),
            tpot_s=Distribution.of(self._tpot_s),
            latency_s=Distribution.of(self._latency_s),
        )
