"""VirtualExecutor: a device that computes nothing and takes as long as a cost model says."""

import sys
from collections import deque
from typing import Final, NamedTuple

from minivllm_scheduler.output import SchedulerOutput, StepResult
from minivllm_scheduler.request import Request
from minivllm_scheduler.simulation.clock import VirtualClock
from minivllm_scheduler.simulation.cost import CostModel, StepLoad
from minivllm_scheduler.simulation.errors import InvalidCost
from minivllm_scheduler.simulation.metrics import SimulationMetrics
from minivllm_scheduler.simulation.traffic import SAMPLED_TOKEN_ID, STOP_TOKEN_ID, TimedRequest

NEVER: Final = sys.maxsize
"""More tokens than any request computes."""


class _Launched(NamedTuple):
    result: StepResult
    end_s: float


class VirtualExecutor:
    """Executes steps one after another on a virtual device; an `Executor` for a `StepLoop`.

    A launch costs the host `host_s` and puts the step behind those that the device still has to do. Waiting
    for a result moves the clock to the end of its step. So in order a step takes `host_s` plus its cost; one
    ahead the host's share is hidden wherever the device is the slower one.

    Args:
        clock: Read at a launch, moved by the host's work and by waiting.
        cost: Seconds of each step on the device.
        host_s: Seconds of host work per step, not negative.
        metrics: Told of every launch.

    Attributes:
        num_discarded_tokens: Tokens computed one step ahead for requests that a stop id had ended.
    """

    def __init__(
        self, clock: VirtualClock, cost: CostModel, host_s: float, metrics: SimulationMetrics
    ) -> None:
        self._clock = clock
        self._cost = cost
        self._host_s = host_s
        self._metrics = metrics
        self._launched: deque[_Launched] = deque()
        self._device_free_s = 0.0
        self.num_discarded_tokens = 0
        self._stops_at: dict[str, int] = {}  # by request: tokens computed when its stop id is sampled

    def expect(self, arrival: TimedRequest) -> None:
        """A request was accepted; if it is to be stopped, its stop id comes at the right place."""
        if arrival.stops_after is not None:
            request = arrival.request
            self._stops_at[request.request_id] = len(request.prompt_token_ids) + arrival.stops_after - 1

    def forget(self, request: Request) -> None:
        """A request ended."""
        self._stops_at.pop(request.request_id, None)

    def launch(self, output: SchedulerOutput) -> None:
        """Starts a step.

        Raises:
            InvalidCost: The cost model answers with a time that is negative or not finite.
        """
        load = StepLoad.of(output.rows)
        seconds = self._cost.step_s(load)
        if not 0 <= seconds < float("inf"):
            raise InvalidCost(f"the cost model says {seconds} s for {load}, it must be finite and at least 0")
        self._metrics.launched(output, load, self._clock.now_s)
        self._clock.advance_to(self._clock.now_s + self._host_s)
        self._device_free_s = max(self._clock.now_s, self._device_free_s) + seconds
        self._launched.append(
            _Launched(StepResult(output.step_id, self._sample(output, load.num_samples)), self._device_free_s)
        )

    def result(self) -> StepResult:
        """Waits for the oldest step launched."""
        launched = self._launched.popleft()
        self._clock.advance_to(launched.end_s)
        return launched.result

    def _sample(self, output: SchedulerOutput, num_samples: int) -> tuple[tuple[int, ...], ...]:
        """An id for every row that samples."""
        if not self._stops_at:
            return ((SAMPLED_TOKEN_ID,),) * num_samples
        sampled: list[tuple[int, ...]] = []
        for request_id, start, num_tokens, _, samples in output.rows:
            if samples:
                end, stops_at = start + num_tokens, self._stops_at.get(request_id, NEVER)
                sampled.append((STOP_TOKEN_ID if end == stops_at else SAMPLED_TOKEN_ID,))
                self.num_discarded_tokens += num_tokens if end > stops_at else 0
        return tuple(sampled)
