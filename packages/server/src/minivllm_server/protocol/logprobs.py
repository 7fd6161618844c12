"""Log-probabilities in the two shapes of OpenAI's API."""

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel

from minivllm_runtime.outputs import TokenLogprob, TopLogprob

LEAST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON cannot say."""


class CompletionLogprobs(BaseModel):
    """One entry per token in each list.

    Attributes:
        tokens: Their texts.
        token_logprobs: Null for the first token of an echoed prompt.
        top_logprobs: By text: the most probable tokens and the token itself. Null where `token_logprobs` is.
        text_offset: Where each token begins in the text of the choice, in characters.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class ChatTopLogprob(BaseModel):
    """A token that might have been at some place."""

    token: str
    logprob: float
    bytes: list[int]


class ChatTokenLogprob(ChatTopLogprob):
    """A token of the answer."""

    top_logprobs: list[ChatTopLogprob]


class ChatLogprobs(BaseModel):
    """One entry per token of the answer."""

    content: list[ChatTokenLogprob]
    refusal: None = None


def completion_logprobs(
    prompt: Sequence[TokenLogprob], output: Iterable[TokenLogprob], output_offset: int
) -> dict[str, Any]:
    """Returns the JSON object `CompletionLogprobs`.

    Args:
        prompt: Of an echoed prompt; else empty.
        output: Of generated tokens.
        output_offset: Characters of the choice's text before the generated ones.
    """
    output = tuple(output)
    tokens = (*prompt, *output)
    offsets = [token.text_offset for token in prompt]
    offsets += (output_offset + token.text_offset for token in output)
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [_finite(token.logprob) for token in tokens],
        "top_logprobs": [_top_by_text(token) for token in tokens],
        "text_offset": offsets,
    }


def chat_logprobs(output: Iterable[TokenLogprob]) -> dict[str, Any]:
    """Returns the JSON object `ChatLogprobs`."""
    content = [{**_entry(token), "top_logprobs": [_entry(top) for top in token.top]} for token in output]
    return {"content": content, "refusal": None}


def _top_by_text(token: TokenLogprob) -> dict[str, float] | None:
    if token.logprob is None:
        return None
    by_text: dict[str, float] = {}
    for top in token.top:  # the most probable of those whose bytes are no text and look alike
        by_text.setdefault(top.text, max(top.logprob, LEAST_LOGPROB))
    by_text[token.text] = max(token.logprob, LEAST_LOGPROB)
    return by_text


def _entry(token: TokenLogprob | TopLogprob) -> dict[str, Any]:
    return {"token": token.text, "logprob": _finite(token.logprob), "bytes": list(token.bytes)}


def _finite(logprob: float | None) -> float | None:
    return None if logprob is None else max(logprob, LEAST_LOGPROB)
