"""StepLoop: one pass after another over scheduler and executor, in order or one step ahead.

In order, a pass schedules a step, runs it and takes in its result. One step ahead, step N+1 is scheduled and
launched while N is on the device, and only then is N's result taken in::

    in order    schedule 0, launch 0, result 0, update 0 | schedule 1, launch 1, result 1, update 1 | …
    one ahead   schedule 0, launch 0 | schedule 1, launch 1, result 0, update 0 | schedule 2, launch 2, …

The engine and the simulator run the same loop.
"""

from collections import deque
from typing import Protocol

from minivllm_scheduler.output import RequestUpdate, SchedulerOutput, StepResult
from minivllm_scheduler.scheduler import Scheduler


class Executor(Protocol):
    """What computes the steps."""

    def launch(self, output: SchedulerOutput) -> None:
        """Starts a step; need not wait for it. Steps execute in the order in which they are launched."""

    def result(self) -> StepResult:
        """Waits for the oldest launched step whose result was not taken yet, and returns what it sampled.

        After an exception here or in `launch`, an executor may forget what it had launched, or still return
        it: the loop skips results of steps that it has given up.
        """


class StepLoop:
    """Drives a scheduler and an executor.

    Args:
        scheduler: Add and abort requests on it between two calls of `step`.
        executor: Computes the steps.
        run_ahead: Whether the next step is scheduled and launched before the result of this one is taken in.
    """

    def __init__(self, scheduler: Scheduler, executor: Executor, *, run_ahead: bool) -> None:
        self._scheduler = scheduler
        self._executor = executor
        self._depth = 2 if run_ahead else 1
        self._launched: deque[int] = deque()  # step ids whose results are due, oldest first

    @property
    def has_work(self) -> bool:
        """Whether `step` has anything to do: a request to serve, or a step whose result was not taken in."""
        return self._scheduler.num_requests > 0 or self._scheduler.num_in_flight > 0

    def step(self, now: float) -> tuple[RequestUpdate, ...]:
        """Runs one pass.

        Returns:
            The new output ids; none in a pass that only fills the pipeline.

        Raises:
            Exception: Whatever the executor raises. Call `fail` next; then the loop can be used again.
        """
        output = self._scheduler.schedule(now)
        if output is not None:
            self._executor.launch(output)
            self._launched.append(output.step_id)
        if not self._launched or (output is not None and len(self._launched) < self._depth):
            return ()
        return self._scheduler.update(self._take_result(), now)

    def fail(self, now: float) -> tuple[str, ...]:
        """Gives up the steps in flight after an exception from `step`.

        Returns:
            The requests ended by this: those that had a row in such a step.
        """
        self._launched.clear()
        return self._scheduler.fail(now)

    def _take_result(self) -> StepResult:
        due = self._launched.popleft()
        result = self._executor.result()
        while result.step_id < due:
            result = self._executor.result()
        return result
