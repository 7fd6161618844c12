"""QueueClock: how long requests wait until they are first scheduled."""

from collections.abc import Callable

from minivllm_scheduler import Executor, SchedulerOutput, StepResult


class QueueClock:
    """An executor around another one that sees requests being admitted.

    Args:
        executor: Does the work.
        clock: Tells the time in seconds.
    """

    def __init__(self, executor: Executor, clock: Callable[[], float]) -> None:
        self._executor = executor
        self._clock = clock
        self._added_at: dict[str, float] = {}
        self._times_s: list[float] = []

    def add_request(self, request_id: str) -> None:
        """A request begins to wait."""
        self._added_at[request_id] = self._clock()

    def remove_request(self, request_id: str) -> None:
        """A request has ended, waiting or not."""
        self._added_at.pop(request_id, None)

    def take(self) -> tuple[float, ...]:
        """Return and forget the seconds that requests waited which were first scheduled since the last call."""
        taken, self._times_s = tuple(self._times_s), []
        return taken

    def launch(self, output: SchedulerOutput) -> None:
        """See `Executor.launch`."""
        for admitted in output.admitted:
            added_at = self._added_at.pop(admitted.request_id, None)
            if added_at is not None:  # not one that was preempted and is back
                self._times_s.append(self._clock() - added_at)
        self._executor.launch(output)

    def result(self) -> StepResult:
        """See `Executor.result`."""
        return self._executor.result()
