"""LiveEngine: the core of minivllm's engine, serving a workload in real time."""

import heapq
import itertools
import time
from array import array
from collections.abc import Iterator
from typing import Self

from minivllm_bench.engines.interface import EngineSettings
from minivllm_bench.errors import EngineFailed
from minivllm_bench.live.live_report import LiveReport
from minivllm_bench.live.pass_times import PassTimes
from minivllm_runtime.config import EngineConfig
from minivllm_runtime.engine.builder import BuiltEngine, build_engine
from minivllm_runtime.engine.engine_core import EngineCore
from minivllm_runtime.engine.messages import AddRequests, EngineRequest, Refused, TokenOutput
from minivllm_runtime.errors import MinivllmError
from minivllm_scheduler import FinishReason
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
    """The engine with default settings, in order, and its passes timed. Nothing else runs: no text, no HTTP.

    Args:
        built: Its core is stepped here.
        setup: How its scheduler was built.
        times: What listens to that scheduler.
    """

    def __init__(self, built: BuiltEngine, setup: Setup, times: PassTimes) -> None:
        self._built = built
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
            built = build_engine(config, record=record)
        except MinivllmError as error:
            raise EngineFailed(f"minivllm cannot load {settings.model}: {error}") from error
        return cls(built, setups[0], times)

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

    def serve(self, workload: Workload) -> LiveReport:
        """Send the requests when the workload says so, take their tokens, and wait for the last one.

        Raises:
            EngineFailed: a request was refused or failed.
        """
        self._num_runs += 1
        vocab_size = self._built.model_config.vocab_size
        run = _Run(self._built.core, vocab_size, workload.start(), f"run {self._num_runs}")
        run.to_the_end()
        return run.report()

    def take_steps(self) -> tuple[MeasuredStep, ...]:
        """Load and time of the passes since the last call."""
        return self._times.take()


class _Arrivals:
    """Requests in the order of their times: those planned from the start, and those that follow an answer."""

    def __init__(self, planned: Iterator[TimedRequest]) -> None:
        self._planned = planned
        self._number = itertools.count()
        self._heap: list[tuple[float, int, TimedRequest]] = []
        self._plan_next()

    @property
    def next_time_s(self) -> float | None:
        """When the next one comes; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def add(self, arrival: TimedRequest) -> None:
        heapq.heappush(self._heap, (arrival.time_s, next(self._number), arrival))

    def take_until(self, now_s: float) -> list[TimedRequest]:
        """Those that have come by now."""
        due = []
        while self._heap and self._heap[0][0] <= now_s:
            arrival = heapq.heappop(self._heap)[2]
            due.append(arrival)
            if arrival is self._last_planned:
                self._plan_next()
        return due

    def _plan_next(self) -> None:
        self._last_planned = next(self._planned, None)
        if self._last_planned is not None:
            self.add(self._last_planned)


class _Run:
    """One workload under way."""

    def __init__(self, core: EngineCore, vocab_size: int, traffic: Traffic, name: str) -> None:
        self._core = core
        self._vocab_size = vocab_size
        self._traffic = traffic
        self._name = name
        self._arrivals = _Arrivals(iter(traffic.arrivals()))
        self._open: dict[str, TimedRequest] = {}
        self._first_s: dict[str, float] = {}
        self._start_s = time.perf_counter()
        self._ttft_s = array("d")
        self._tpot_s = array("d")
        self._latency_s = array("d")
        self._num_output_tokens = 0
        self._last_token_s = 0.0

    def to_the_end(self) -> None:
        while self._core.has_work or self._arrivals.next_time_s is not None:
            for arrival in self._arrivals.take_until(self._now_s()):
                self._send(arrival)
            if self._core.has_work:
                for output in self._core.step():
                    self._take(output)
            elif self._arrivals.next_time_s is not None:
                time.sleep(max(0.0, self._arrivals.next_time_s - self._now_s()))

    def _send(self, arrival: TimedRequest) -> None:
        request_id = f"{self._name}/{arrival.request.request_id}"
        self._open[request_id] = arrival
        # What differs for the simulator nearly always differs here too.
        prompt = tuple(token_id % self._vocab_size for token_id in arrival.request.prompt_token_ids)
        request = EngineRequest(
            request_id=request_id,
            prompt_token_ids=prompt,
            max_tokens=arrival.request.max_tokens,
            temperature=0.0,
        )
        for answer in self._core.execute([AddRequests(request_id, (request,))]):
            if isinstance(answer, Refused):
                raise EngineFailed(f"minivllm: {answer.message}")

    def _take(self, output: TokenOutput) -> None:
        if output.finish_reason is FinishReason.ERROR:
            raise EngineFailed(f"minivllm: {output.error}")
        now_s, request_id = self._now_s(), output.request_id
        self._num_output_tokens += len(output.token_ids)
        first_s = self._first_s.setdefault(request_id, now_s)
        if output.finish_reason is None:
            return
        arrival = self._open.pop(request_id)
        self._last_token_s = now_s
        self._ttft_s.append(first_s - arrival.time_s)
        self._latency_s.append(now_s - arrival.time_s)
        if arrival.request.max_tokens > 1:
            self._tpot_s.append((now_s - first_s) / (arrival.request.max_tokens - 1))
        following = self._traffic.follow_up(arrival.request, now_s)
        if following is not None:
            self._arrivals.add(following)

    def _now_s(self) -> float:
        return time.perf_counter() - self._start_s

    def report(self) -> LiveReport:
        return LiveReport(
            num_finished=len(self._latency_s),
            duration_s=self._last_token_s,
            output_tokens_per_s=self._num_output_tokens / self._last_token_s,
            ttft_s=Distribution.of(self._ttft_s),
            tpot_s=Distribution.of(self._tpot_s),
            latency_s=Distribution.of(self._latency_s),
        )
