"""From validated requests to answers: what the endpoints that generate text share."""

import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from minivllm_runtime.engine.async_engine import Submission
from minivllm_runtime.engine.outbox import Outbox
from minivllm_runtime.errors import InvalidParameter, MinivllmError
from minivllm_runtime.outputs import ChoiceDelta
from minivllm_runtime.sampling_params import SamplingParams
from minivllm_server.exchange import Exchange
from minivllm_server.meter import Meter
from minivllm_server.protocol.usage import Usage, UsageCounter
from minivllm_server.serving import Serving


@dataclass(frozen=True, slots=True)
class Identity:
    """What all chunks of an answer share."""

    id: str
    created: int
    model: str


def new_identity(prefix: str, model: str) -> Identity:
    """Returns an identity that no other answer has; its id starts with `prefix`."""
    return Identity(f"{prefix}-{uuid.uuid4().hex}", int(time.time()), model)


def check_num_choices(num_prompts: int, n: int, limit: int) -> None:
    """Refuses what the waiting queue can never hold.

    Raises:
        InvalidParameter: `n × prompts` is above the limit.
    """
    if num_prompts * n > limit:
        raise InvalidParameter("n", f"n * prompts must be at most {limit}, got {n} * {num_prompts}")


class Generation:
    """A submission that measures what is read of it, charges its API key, and tells the exchange in the end.

    Attributes:
        usage: What was read so far.
    """

    def __init__(self, submission: Submission, n: int, meter: Meter, exchange: Exchange) -> None:
        self._submission = submission
        self._meter = meter
        self._exchange = exchange
        self._finish_reasons: list[str] = []
        self.usage = UsageCounter(submission.num_prompt_tokens, n)
        self._exchange.charge_tokens(submission.num_prompt_tokens)

    @classmethod
    async def start(
        cls,
        serving: Serving,
        exchange: Exchange,
        identity: Identity,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        default_max_tokens: int | None = None,
    ) -> "Generation":
        """Queues all choices of all prompts, or none; see `AsyncEngine.submit`."""
        submission = await serving.engine.submit(
            prompts,
            params,
            request_id=identity.id,
            default_max_tokens=default_max_tokens,
            tenant=exchange.key_name or "",
        )
        serving.metrics.count_prompt(submission.num_prompt_tokens)
        num_choices = len(prompts) * params.n
        meter = Meter(serving.metrics, serving.clock, exchange.started_at, num_choices)
        exchange.details["model"] = identity.model
        return cls(submission, params.n, meter, exchange)

    async def __aiter__(self) -> AsyncIterator[tuple[ChoiceDelta, ...]]:
        """Yields what became known since the last time; see `Submission`."""
        try:
            async for deltas in self._submission:
                self._count(deltas)
                yield deltas
        except MinivllmError:
            self._end_early("error")
            raise

    async def aclose(self) -> None:
        """Aborts whatever is unfinished."""
        await self._submission.aclose()
        self._end_early("abort")
        usage = self.usage.usage()
        self._exchange.details |= {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "finish_reasons": self._finish_reasons,
        }

    async def collect(self) -> tuple[ChoiceDelta, ...]:
        """Waits for the end; returns each choice whole, by index."""
        whole = Outbox()
        async with aclosing(self):
            async for deltas in self:
                for delta in deltas:
                    whole.merge(delta)
        return whole.take()

    def _end_early(self, reason: str) -> None:
        self._finish_reasons += [reason] * self._meter.end_early(reason)

    def _count(self, deltas: tuple[ChoiceDelta, ...]) -> None:
        self.usage.add(deltas)
        self._meter.add(deltas)
        self._exchange.charge_tokens(sum(len(delta.token_ids) for delta in deltas))
        self._finish_reasons += (delta.finish_reason for delta in deltas if delta.finish_reason is not None)


class AnswerChunks:
    """The chunks of a streamed answer, as JSON objects.

    Args:
        kind: Their `object`.
        identity: What all chunks share.
        choices_of: The entries of `choices` that a delta makes, one chunk each.
        opening: Entries of `choices` that come before every delta, one chunk each.
        usage: What was generated, asked for once at the end; None if the client did not ask for usage.
    """

    def __init__(
        self,
        kind: str,
        identity: Identity,
        choices_of: Callable[[ChoiceDelta], Iterable[dict[str, Any]]],
        *,
        opening: Iterable[dict[str, Any]] = (),
        usage: Callable[[], Usage] | None = None,
    ) -> None:
        self._shared = {
            "id": identity.id,
            "object": kind,
            "created": identity.created,
            "model": identity.model,
        }
        # A client that asked for usage finds the field in every chunk.
        self._usage_so_far = {} if usage is None else {"usage": None}
        self._choices_of = choices_of
        self._opening = opening
        self._usage = usage

    def opening_chunks(self) -> Iterator[dict[str, Any]]:
        """Yields the chunks that come before every delta."""
        return map(self._chunk, self._opening)

    def chunks(self, deltas: Iterable[ChoiceDelta]) -> Iterator[dict[str, Any]]:
        """Yields the chunks of new deltas."""
        for delta in deltas:
            for choice in self._choices_of(delta):
                yield self._chunk(choice)

    def closing_chunks(self) -> Iterator[dict[str, Any]]:
        """Yields the usage chunk, if it was asked for."""
        if self._usage is not None:
            yield {**self._shared, "choices": [], "usage": self._usage().model_dump()}

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        return {**self._shared, "choices": [choice], **self._usage_so_far}
