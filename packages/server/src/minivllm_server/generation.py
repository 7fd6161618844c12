"""The life of one request for text, from its submission to its end: what the endpoints that generate share."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

from minivllm_runtime.engine.async_engine import Submission
from minivllm_runtime.engine.outbox import Outbox
from minivllm_runtime.errors import InvalidParameter, MinivllmError
from minivllm_runtime.outputs import ChoiceDelta
from minivllm_runtime.sampling_params import SamplingParams
from minivllm_server.answer import Identity
from minivllm_server.exchange import Exchange
from minivllm_server.meter import Meter
from minivllm_server.protocol.usage import UsageCounter
from minivllm_server.serving import Serving


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
