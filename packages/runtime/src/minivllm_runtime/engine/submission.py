"""A reader's end of one submission: merged deltas, at whatever pace they are read."""

import asyncio
from collections.abc import AsyncIterator, Callable

from minivllm_runtime.engine.outbox import Outbox
from minivllm_runtime.engine.output_processor import SubmissionUpdate
from minivllm_runtime.errors import MinivllmError
from minivllm_runtime.outputs import ChoiceDelta


class Submission:
    """Iterates over what one HTTP request or one call generates; lives in one event loop.

    Attributes:
        num_prompt_tokens: Summed over the prompts, each counted once however many choices it has.
    """

    def __init__(self, num_prompt_tokens: int, abort: Callable[[], None]) -> None:
        self.num_prompt_tokens = num_prompt_tokens
        self._abort = abort
        self._outbox = Outbox()
        self._news = asyncio.Event()
        self._is_finished = False
        self._error: MinivllmError | None = None

    def deliver(self, update: SubmissionUpdate) -> None:
        """Take in news from the engine."""
        for delta in update.deltas:
            self._outbox.merge(delta)
        self._is_finished = update.is_finished
        self._error = update.error
        self._news.set()

    def fail(self, error: MinivllmError) -> None:
        """End the submission; the reader gets what is pending, then `error`."""
        self._is_finished = True
        self._error = error
        self._news.set()

    async def __aiter__(self) -> AsyncIterator[tuple[ChoiceDelta, ...]]:
        """Yield what became known since the last time, at most one delta per choice, until every choice ended.

        Raises:
            RequestFailed: a fault while this submission was computed or decoded.
            InvalidParameter: the output has come to a part of json_schema that nothing satisfies.
            EngineDead: the engine stopped.
        """
        while not (self._is_finished and self._outbox.is_empty):
            await self._news.wait()
            self._news.clear()
            if not self._outbox.is_empty:
                yield self._outbox.take()
        if self._error is not None:
            raise self._error

    async def aclose(self) -> None:
        """Abort whatever is unfinished. May be called at any time, and again."""
        if not self._is_finished:
            self._is_finished = True
            self._abort()
        self._news.set()
