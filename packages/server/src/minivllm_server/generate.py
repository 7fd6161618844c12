"""Generating one text in the terminal."""

import asyncio
import time
import uuid
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from minivllm_runtime.engine.async_engine import AsyncEngine
from minivllm_runtime.errors import MinivllmError
from minivllm_runtime.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class Generated:
    """What a generation cost.

    Attributes:
        num_tokens: Generated tokens.
        seconds: From the submission to the last token; prompt processing included.
    """

    num_tokens: int
    seconds: float

    @property
    def tokens_per_s(self) -> float:
        """Generated tokens per second."""
        return self.num_tokens / self.seconds if self.seconds > 0 else 0.0


async def generate_text(
    engine: AsyncEngine, prompt: str, params: SamplingParams, *, chat: bool, write: Callable[[str], object]
) -> Generated:
    """Generates from `prompt` and passes each piece of text to `write` as it comes.

    Args:
        engine: Loaded, not started; shut down in the end.
        prompt: The text to continue, or with `chat` what the user says.
        params: How to generate.
        chat: Whether to put the prompt into the model's chat template.
        write: Takes the pieces.

    Raises:
        InvalidParameter: The prompt does not fit.
        EngineDead, RequestFailed: The engine broke.
    """
    await engine.start()
    try:
        prompt_token_ids = (
            await engine.encode_chat([{"role": "user", "content": prompt}])
            if chat
            else await engine.encode(prompt)
        )
        begin = time.perf_counter()
        num_tokens = 0
        submission = await engine.submit([prompt_token_ids], params, request_id=uuid.uuid4().hex)
        try:
            async with aclosing(submission):
                async for deltas in submission:
                    for delta in deltas:
                        num_tokens += len(delta.token_ids)
                        write(delta.text)
        except (asyncio.CancelledError, MinivllmError):
            write("\n")  # who says why begins a line of its own
            raise
        return Generated(num_tokens, time.perf_counter() - begin)
    finally:
        await engine.shutdown()
