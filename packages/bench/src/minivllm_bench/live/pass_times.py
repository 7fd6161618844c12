"""PassTimes: how long each pass of the engine's step loop takes, and what was computed in it."""

import time
from collections.abc import Callable

from minivllm_scheduler.recording import Added, Event, PassBegan, Scheduled
from minivllm_scheduler.simulation import MeasuredStep, StepLoad


class PassTimes:
    """Listens to the events of a recorded scheduler whose step loop runs in order.

    A pass lasts from its beginning to that of the next one, so everything between two steps is in it: commands,
    results on their way to the client, the scheduler. A pass after which no request is left is not counted,
    since the engine then waits for the next one. Requests must run to their `max_tokens`.

    Args:
        clock: Seconds of a clock that never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._measured: list[MeasuredStep] = []
        self._last_positions: dict[
            str, int
        ] = {}  # by live request: tokens computed when its last one is sampled
        self._load: StepLoad | None = None  # of the pass under way
        self._began_s = 0.0

    def record(self, event: Event) -> None:
        """Takes note of an event as it happens; called in the engine's thread."""
        match event:
            case PassBegan():
                now_s = self._clock()
                if self._load is not None:
                    self._measured.append(MeasuredStep(self._load, now_s - self._began_s))
                self._load, self._began_s = None, now_s
            case Added(_, requests):
                for request in requests:
                    last = len(request.prompt_token_ids) + request.max_tokens - 1
                    self._last_positions[request.request_id] = last
            case Scheduled(output):
                for row in output.rows:
                    if self._last_positions[row.request_id] == row.start + row.num_tokens:
                        del self._last_positions[row.request_id]
                self._load = StepLoad.of(output.rows) if self._last_positions else None

    def take(self) -> tuple[MeasuredStep, ...]:
        """The passes since the last call; to be called while the engine has no request."""
        taken, self._measured = tuple(self._measured), []
        return taken
