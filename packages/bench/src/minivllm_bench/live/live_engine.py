"""LiveEngine: the core of minivllm's engine, serving a workload in real time."""

import time
from array import array
from typing import Self

from minivllm_bench.engines.interface import EngineSettings
from minivllm_bench.errors import EngineFailed
from minivllm_bench.live.live_report import LiveReport
from minivllm_bench.live.pass_times import PassTimes
from minivllm_runtime.config import EngineConfig
from minivllm_runtime.engine.builder import BuiltEngine, build_engine
from minivllm_runtime.engine.engine_core import EngineCore
from minivllm_runtime.errors import MinivllmError
from minivllm_runtime.messages import AddRequests, EngineRequest, Refused, TokenOutput
from minivllm_scheduler import FinishReason
from minivllm_scheduler.recording import Event, Setup
from minivllm_scheduler.simulation import (
    Distribution,
    MeasuredStep,
    SimulatedEngine,
    TimedRequest,
    Traffic,
    UpcomingRequests,
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


class _Run:
    """One workload under way."""

    def __init__(self, core: EngineCore, vocab_size: int, traffic: Traffic, name: str) -> None:
        self._core = core
        self._vocab_size = vocab_size
        self._upcoming = UpcomingRequests(traffic)
        self._name = name
        self._open: dict[str, TimedRequest] = {}
        self._first_s: dict[str, float] = {}
        self._start_s = time.perf_counter()
        self._ttft_s = array("d")
        self._tpot_s = array("d")
        self._latency_s = array("d")
        self._num_output_tokens = 0
        self._last_token_s = 0.0

    def to_the_end(self) -> None:
        while True:
            for arrival in self._upcoming.take_due(self._now_s()):
                self._send(arrival)
            if self._core.has_work:
                for output in self._core.step():
                    self._take(output)
            elif (next_time_s := self._upcoming.next_time_s) is not None:
                time.sleep(max(0.0, next_time_s - self._now_s()))
            else:
                return

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
        self._upcoming.ended(arrival.request, now_s)

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
