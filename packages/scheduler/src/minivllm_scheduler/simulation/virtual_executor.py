"""VirtualExecutor: a device that computes nothing and takes as long as a cost model says."""

from collections import deque
from typing import NamedTuple

from minivllm_scheduler.output import SchedulerOutput, StepResult
from minivllm_scheduler.simulation.clock import VirtualClock
from minivllm_scheduler.simulation.cost import CostModel, StepLoad
from minivllm_scheduler.simulation.errors import InvalidCost
from minivllm_scheduler.simulation.recorder import Recorder
from minivllm_scheduler.simulation.traffic import SAMPLED_TOKEN_ID


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
        recorder: Told of every launch.
    """

    def __init__(self, clock: VirtualClock, cost: CostModel, host_s: float, recorder: Recorder) -> None:
        self._clock = clock
        self._cost = cost
        self._host_s = host_s
        self._recorder = recorder
        self._launched: deque[_Launched] = deque()
        self._device_free_s = 0.0

    def launch(self, output: SchedulerOutput) -> None:
        """Starts a step.

        Raises:
            InvalidCost: The cost model answers with a time that is negative or not finite.
        """
        load = StepLoad.of(output.rows)
        seconds = self._cost.step_s(load)
        if not 0 <= seconds < float("inf"):
            raise InvalidCost(f"the cost model says {seconds} s for {load}, it must be finite and at least 0")
        self._recorder.launched(output, load, self._clock.now_s)
        self._clock.advance_to(self._clock.now_s + self._host_s)
        self._device_free_s = max(self._clock.now_s, self._device_free_s) + seconds
        result = StepResult(output.step_id, ((SAMPLED_TOKEN_ID,),) * load.num_samples)
        self._launched.append(_Launched(result, self._device_free_s))

    def result(self) -> StepResult:
        """Waits for the oldest step launched; every row that samples got `SAMPLED_TOKEN_ID`."""
        launched = self._launched.popleft()
        self._clock.advance_to(launched.end_s)
        return launched.result
