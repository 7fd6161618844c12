"""What a finished or growing generation looks like to a caller, in the shapes that vLLM's users know."""

from dataclasses import dataclass
from typing import Literal

FinishReasonName = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class TopLogprob:
    """One of the most probable tokens at some place.

    Attributes:
        token_id: Its id, always one that the tokenizer knows.
        text: Its bytes as text; parts of a character are U+FFFD.
        bytes: The token's own bytes.
        logprob: Log-softmax of the raw logits, natural logarithm.
    """

    token_id: int
    text: str
    bytes: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The log-probability of one token of a text.

    Attributes:
        token_id, text, bytes: As in TopLogprob.
        logprob: As in TopLogprob, may be -inf; None for the first token of a prompt, which no token precedes.
        rank: 1 plus the number of more probable tokens; None where `logprob` is.
        text_offset: Characters of the text that were complete before this token.
        top: The most probable tokens, as many as asked for, most probable first and the lowest of equal ids first;
            this token is among them only if it is one of them.
    """

    token_id: int
    text: str
    bytes: bytes
    logprob: float | None
    rank: int | None
    text_offset: int
    top: tuple[TopLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One choice of one prompt.

    Attributes:
        index: Position among the `n` choices of its prompt.
        text: The generated text, without prompt and (unless asked for) without the stop string.
        token_ids: The generated ids; an end-of-sequence token that ended generation is one of them.
        finish_reason: "stop" (end-of-sequence, stop id or stop string) or "length".
        stop_reason: The stop string or the stop id that ended it; None for end-of-sequence and length.
        logprobs: One per id of `token_ids`; None unless asked for.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReasonName
    stop_reason: str | int | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """Everything generated for one prompt.

    Attributes:
        request_id: The id of the request.
        prompt: The prompt's text; None if it was given as ids.
        prompt_token_ids: Its token ids.
        outputs: One per choice, by index.
        num_cached_tokens: Prompt tokens whose KV came from the prefix cache (of the first choice).
        prompt_logprobs: One per prompt token; None unless asked for.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[CompletionOutput, ...]
    num_cached_tokens: int = 0
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True, slots=True)
class ChoiceDelta:
    """What became known about one choice since the last delta of it.

    Attributes:
        index: prompt index * n + choice index, over the whole submission.
        text: New text, safe to send: no half character, no beginning of a stop string that may still complete.
        token_ids: New ids; joined over all deltas they are the ids that count in usage.
        finish_reason: Set on the last delta of the choice.
        stop_reason: The stop string or stop id that ended it.
        num_cached_tokens: Prompt tokens taken from the prefix cache.
        logprobs: One per id of `token_ids`; None unless asked for.
        prompt_logprobs: One per prompt token, in the first delta of the first choice of a prompt; None in all others,
            and unless asked for.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReasonName | None = None
    stop_reason: str | int | None = None
    num_cached_tokens: int = 0
    logprobs: tuple[TokenLogprob, ...] | None = None
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None
