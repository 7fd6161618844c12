"""A conversation with a model, turn by turn."""

import uuid
from collections.abc import Callable
from contextlib import aclosing

from minivllm_runtime.engine.async_engine import AsyncEngine
from minivllm_runtime.sampling_params import SamplingParams


class Conversation:
    """Remembers what was said, as far as it was read.

    Args:
        engine: Answers; started.
        params: How answers are generated.
        system: What the model is told before everything else; None tells nothing.

    Attributes:
        messages: So far, oldest first.
    """

    def __init__(self, engine: AsyncEngine, params: SamplingParams, system: str | None = None) -> None:
        self._engine = engine
        self._params = params
        self._opening = [] if system is None else [{"role": "system", "content": system}]
        self.messages = list(self._opening)

    def clear(self) -> None:
        """Forgets everything but the system's message."""
        self.messages = list(self._opening)

    async def say(self, text: str, write: Callable[[str], object]) -> None:
        """Says `text` and passes each piece of the answer to `write` as it comes.

        An answer that is cancelled is remembered as far as it got; a text that does not fit is not.

        Raises:
            InvalidParameter: The conversation has become too long.
        """
        asked = [*self.messages, {"role": "user", "content": text}]
        prompt = await self._engine.encode_chat(asked)
        submission = await self._engine.submit([prompt], self._params, request_id=uuid.uuid4().hex)
        answer = ""
        try:
            async with aclosing(submission):
                async for deltas in submission:
                    for delta in deltas:
                        answer += delta.text
                        write(delta.text)
        finally:
            self.messages = [*asked, {"role": "assistant", "content": answer}]
