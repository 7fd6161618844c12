"""Measures one generation while it is read: the first token, those after it, and the end of each choice."""

from collections.abc import Iterable

from minivllm_runtime.outputs import ChoiceDelta
from minivllm_server.metrics import ServerMetrics
from minivllm_server.rate_limit import Clock


class Meter:
    """Turns the deltas of one request into measurements.

    Args:
        metrics: Gets them.
        clock: Tells the time.
        started_at: When the request came, on that clock.
        num_choices: Of all prompts together.
    """

    def __init__(self, metrics: ServerMetrics, clock: Clock, started_at: float, num_choices: int) -> None:
        self._metrics = metrics
        self._clock = clock
        self._started_at = started_at
        self._last_token_at: dict[int, float] = {}
        self._num_open = num_choices

    def add(self, deltas: Iterable[ChoiceDelta]) -> None:
        """Measures what was just read."""
        now = self._clock()
        for delta in deltas:
            if delta.token_ids:
                self._add_tokens(delta.index, len(delta.token_ids), now)
            if delta.finish_reason is not None:
                self._metrics.count_end(delta.finish_reason)
                self._num_open -= 1
                if self._num_open == 0:
                    self._metrics.observe_request(now - self._started_at)

    def end_early(self, reason: str) -> int:
        """Counts the choices that have not ended, for one of `FINISH_REASONS`, and says how many they are.

        Nothing is added after this.
        """
        num_ended, self._num_open = self._num_open, 0
        for _ in range(num_ended):
            self._metrics.count_end(reason)
        return num_ended

    def _add_tokens(self, index: int, num_tokens: int, now: float) -> None:
        self._metrics.count_generated(num_tokens)
        last_at = self._last_token_at.get(index)
        if last_at is None:
            self._metrics.observe_first_token(now - self._started_at)
        else:
            self._metrics.observe_tokens(num_tokens, now - last_at)
        self._last_token_at[index] = now
