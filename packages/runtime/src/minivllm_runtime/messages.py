"""What crosses the border between the engine core (ids only) and its clients (text).

All of it is frozen and made of numbers, strings, tuples and frozensets: `process/` sends it to another process.
"""

from typing import NamedTuple

import msgspec

from minivllm_scheduler import FinishReason

GREEDY_TEMPERATURE = 1e-5
"""Temperatures below this are greedy: dividing logits by less overflows and gains nothing."""


class EngineRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One choice of one prompt, ready to be scheduled.

    Attributes:
        request_id: Unique inside the engine.
        prompt_token_ids: At least one id, each inside the embedding.
        max_tokens: Resolved; the request is known to fit context and pool. 0 only scores the prompt.
        min_tokens: Until then `stop_token_ids` are never sampled.
        stop_token_ids: Ids that end generation, end-of-sequence ids included unless ignored.
        temperature, top_k, top_p, min_p: As in SamplingParams; top_k is 0 when off.
        repetition_penalty, presence_penalty, frequency_penalty: As in SamplingParams.
        logit_bias: Pairs of id and bias, each id once.
        logprobs, prompt_logprobs: As in SamplingParams. Siblings share the first one's prompt, which alone reports it.
        json_schema: Text of the schema that the output follows.
        seed: Resolved to 0 <= seed < 2**64.
        choice: Index among the siblings of one prompt; part of the counter of every draw.
        group: Shared by the siblings; they wait until the first one's prompt is cached.
        tenant: Whose request it is; the fair policy shares between tenants.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    max_tokens: int
    min_tokens: int = 0
    stop_token_ids: frozenset[int] = frozenset()
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    json_schema: str | None = None
    seed: int = 0
    choice: int = 0
    group: str | None = None
    priority: int = 0
    tenant: str = ""
    cache_salt: str = ""

    @property
    def is_greedy(self) -> bool:
        """Whether it takes the most probable id of every step."""
        return self.temperature < GREEDY_TEMPERATURE


class AddRequests(msgspec.Struct, frozen=True):
    """Command: accept all of these requests or none. Answered by one Accepted or Refused of the same batch id."""

    batch_id: str
    requests: tuple[EngineRequest, ...]


class AbortRequest(msgspec.Struct, frozen=True):
    """Command: end one request, in whatever state; unknown and finished ids are ignored. Not answered."""

    request_id: str


class AskStats(msgspec.Struct, frozen=True):
    """Command: tell the engine's numbers. Answered by an Accepted of the same batch id, beside which they are."""

    batch_id: str


class Accepted(msgspec.Struct, frozen=True, tag=True):
    """Answer: the batch is in the queue, or the numbers are beside this."""

    batch_id: str


class Refused(msgspec.Struct, frozen=True, tag=True):
    """Answer: the batch is not in the queue. `queue_full` tells "not now" from "never"; `param` is at fault."""

    batch_id: str
    message: str
    queue_full: bool
    param: str = "prompt"


class TokenLogprobs(NamedTuple):
    """Log-probabilities at the place of one token, from the raw logits.

    Attributes:
        logprob: Of the token; may be -inf.
        rank: 1 plus the number of more probable ids.
        top: (id, log-probability) of the most probable ids, as many as asked for, most probable first.
    """

    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]


class TokenOutput(NamedTuple):
    """New tokens of one request. With FinishReason.ERROR, `error` says what happened.

    Attributes:
        logprobs: One per new token; None if the request does not want them.
        prompt_logprobs: With the first output of a request that wants them: one per prompt token but the first.
        error_param: With an error, the parameter of the request that is to blame; None blames the engine.
    """

    request_id: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None
    num_cached_tokens: int
    error: str | None
    logprobs: tuple[TokenLogprobs, ...] | None = None
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None
    error_param: str | None = None


class EngineStats(NamedTuple):
    """Gauges and counters at one moment."""

    num_running: int
    num_waiting: int
    num_preemptions: int
    num_blocks: int
    num_blocks_in_use: int
    num_blocks_allocatable: int
    prefix_queries_tokens: int
    prefix_hits_tokens: int
    num_steps: int


class StepOutput(NamedTuple):
    """What the engine tells its client: answers between two steps, or the tokens of a step.

    Attributes:
        queue_times_s: How long the requests waited that the step scheduled for the first time.
    """

    answers: tuple[Accepted | Refused, ...]
    tokens: tuple[TokenOutput, ...]
    stats: EngineStats
    queue_times_s: tuple[float, ...] = ()


Command = AddRequests | AbortRequest | AskStats
