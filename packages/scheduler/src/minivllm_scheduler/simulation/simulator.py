"""Simulator: the engine's own scheduler and step loop, on a virtual clock and a device that only takes time."""

from collections.abc import Callable

from minivllm_scheduler.errors import QueueFull, RequestTooLarge
from minivllm_scheduler.simulation.clock import VirtualClock
from minivllm_scheduler.simulation.cost import CostModel
from minivllm_scheduler.simulation.metrics import SimulationMetrics
from minivllm_scheduler.simulation.report import SimulationReport
from minivllm_scheduler.simulation.simulated_engine import SimulatedEngine
from minivllm_scheduler.simulation.traffic import Traffic, Workload
from minivllm_scheduler.simulation.upcoming import UpcomingRequests
from minivllm_scheduler.simulation.virtual_executor import VirtualExecutor

Progress = Callable[[int], None]
"""Called after each step that ended requests, with the number of requests ended or refused so far."""


def simulate(
    engine: SimulatedEngine, cost: CostModel, workload: Workload, *, progress: Progress | None = None
) -> SimulationReport:
    """Serves `workload` and says how it went. The same arguments give the same report, in any process.

    Raises:
        InvalidArgument: of `minivllm_kvcache`: the engine's `num_blocks` or `block_size` is below 1.
        InvalidCost: The cost model answers with a time that is negative or not finite.
        InvalidWorkload: The workload's requests are not in order of time.
    """
    return Simulator(engine, cost, workload.start()).run(progress)


class Simulator:
    """One simulation, from the first arrival to the last token.

    The loop is the engine's: take in what has arrived, do one pass of the step loop. An arrival during a step
    is therefore taken in when it ends, as in the engine. When nothing is left to do, time jumps to the next arrival.

    Args:
        engine: What is simulated.
        cost: How long its steps take.
        traffic: The requests; used up by `run`.
    """

    def __init__(self, engine: SimulatedEngine, cost: CostModel, traffic: Traffic) -> None:
        kv = engine.make_kv()
        self._scheduler = engine.make_scheduler(kv)
        self._clock = VirtualClock()
        self._metrics = SimulationMetrics(kv)
        self._executor = VirtualExecutor(self._clock, cost, engine.host_s, self._metrics)
        self._loop = engine.make_loop(self._scheduler, self._executor)
        self._upcoming = UpcomingRequests(traffic)

    def run(self, progress: Progress | None = None) -> SimulationReport:
        """Runs to the end of the traffic; to be called once."""
        while True:
            if not self._loop.has_work:
                next_time_s = self._upcoming.next_time_s
                if next_time_s is None:
                    break
                self._clock.advance_to(next_time_s)
            self._take_arrivals()
            if self._step() and progress is not None:
                progress(self._metrics.num_finished + self._metrics.num_refused)
        return self._metrics.report(self._scheduler.stats(), self._executor.num_discarded_tokens)

    def _take_arrivals(self) -> None:
        now_s = self._clock.now_s
        for arrival in self._upcoming.take_due(now_s):
            try:
                self._scheduler.add([arrival.request], now_s)
            except (RequestTooLarge, QueueFull):
                self._metrics.refused()
                self._upcoming.ended(arrival.request, now_s)
            else:
                self._metrics.arrived(arrival)
                self._executor.expect(arrival)

    def _step(self) -> bool:
        """Does one pass. Returns whether requests ended in it."""
        updates = self._loop.step(self._clock.now_s)
        now_s = self._clock.now_s
        ended = self._metrics.updated(updates, now_s)
        for request in ended:
            self._executor.forget(request)
            self._upcoming.ended(request, now_s)
        return bool(ended)
