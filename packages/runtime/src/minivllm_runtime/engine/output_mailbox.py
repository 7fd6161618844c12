"""What an engine thread has computed and an event loop has not come round to take."""

import threading
from collections import defaultdict
from collections.abc import Sequence

from minivllm_runtime.engine.join_outputs import join_outputs
from minivllm_runtime.messages import StepOutput, TokenOutput


class OutputMailbox:
    """Keeps outputs until they are taken, all as one: a loop that was held up has one to handle, not many.

    One thread puts, one takes. Who puts into an empty mailbox wakes the taker; nobody else need.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[StepOutput] = []

    def put(self, output: StepOutput) -> bool:
        """Add an output. Returns whether the mailbox was empty."""
        with self._lock:
            self._waiting.append(output)
            return len(self._waiting) == 1

    def take(self) -> StepOutput:
        """Take all that was put since the last time, as one output; there must be something."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        assert waiting, "only who was woken takes"
        return waiting[0] if len(waiting) == 1 else _join(waiting)


def _join(steps: Sequence[StepOutput]) -> StepOutput:
    """One output that says what those of several steps say, each request's once."""
    outputs: defaultdict[str, list[TokenOutput]] = defaultdict(list)
    for step in steps:
        for output in step.tokens:
            outputs[output.request_id].append(output)
    return StepOutput(
        answers=tuple(answer for step in steps for answer in step.answers),
        tokens=tuple(map(join_outputs, outputs.values())),
        stats=steps[-1].stats,
        queue_times_s=tuple(seconds for step in steps for seconds in step.queue_times_s),
    )
