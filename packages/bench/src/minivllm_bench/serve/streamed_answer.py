"""What a client sees of one streamed answer: when its chunks came, and how many tokens it had."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from minivllm_bench.serve.event_reader import DONE, EventReader

HTTP_OK: Final = 200


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request as its client saw it; times are those of one clock that all processes of a machine share.

    Attributes:
        sent_s: When it was due: just before its connection was opened, or at its planned arrival in an open loop.
        chunk_times_s: When each chunk that has a choice arrived.
        ended_s: When the answer ended, or failed.
        output_tokens: As the server's usage says; 0 for a failed request.
        error: What went wrong, in a word or two that group with others; None for a whole answer.
    """

    sent_s: float
    chunk_times_s: tuple[float, ...]
    ended_s: float
    output_tokens: int
    error: str | None = None


class StreamedAnswer:
    """Takes the body of a streamed answer and notes the arrival of its chunks."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._events = EventReader()
        self._chunk_times_s: list[float] = []
        self._output_tokens: int | None = None
        self._is_done = False
        self._is_error = False

    def receive(self, data: bytes) -> None:
        """Take a piece of the body."""
        now = self._clock()
        for payload in self._events.feed(data):
            if payload == DONE:
                self._is_done = True
            else:
                self._take_chunk(json.loads(payload), now)

    def record(self, *, sent_s: float, status: int | None, output_len: int) -> RequestRecord:
        """How the request went, once its response is complete.

        Args:
            sent_s: See `RequestRecord`.
            status: Of the response.
            output_len: Tokens that were asked for.
        """
        error = self._error(status, output_len)
        tokens = 0 if error or self._output_tokens is None else self._output_tokens
        return RequestRecord(sent_s, tuple(self._chunk_times_s), self._clock(), tokens, error)

    def _take_chunk(self, chunk: dict[str, object], now: float) -> None:
        if "error" in chunk:
            self._is_error = True
        if chunk.get("choices"):
            self._chunk_times_s.append(now)
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self._output_tokens = usage["completion_tokens"]

    def _error(self, status: int | None, output_len: int) -> str | None:
        if status != HTTP_OK:
            return f"status {status}"
        if self._is_error:
            return "error in stream"
        if not self._is_done:
            return "no [DONE]"
        if self._output_tokens is None:
            return "no usage"
        if self._output_tokens != output_len:
            return "wrong number of tokens"
        return None if self._chunk_times_s else "no chunk"
