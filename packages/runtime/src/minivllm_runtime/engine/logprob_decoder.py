"""Log-probabilities with the text of their tokens."""

from collections.abc import Sequence

from minivllm_runtime.engine.detokenizer import IncrementalDetokenizer
from minivllm_runtime.messages import TokenLogprobs
from minivllm_runtime.outputs import TokenLogprob, TopLogprob
from minivllm_runtime.tokenizer import Tokenizer


def decode_logprob(
    token_id: int, scores: TokenLogprobs, text_offset: int, tokenizer: Tokenizer
) -> TokenLogprob:
    """Put the text of tokens to the scores of one place."""
    data = tokenizer.token_bytes(token_id)
    return TokenLogprob(
        token_id=token_id,
        text=_text(data),
        bytes=data,
        logprob=scores.logprob,
        rank=scores.rank,
        text_offset=text_offset,
        top=tuple(_decode_top(top_id, logprob, tokenizer) for top_id, logprob in scores.top),
    )


def decode_prompt_logprobs(
    prompt_token_ids: Sequence[int],
    scores: Sequence[TokenLogprobs],
    tokenizer: Tokenizer,
    hidden_token_ids: frozenset[int],
) -> tuple[TokenLogprob, ...]:
    """Do so for a whole prompt.

    Args:
        prompt_token_ids: All ids.
        scores: Of every id but the first, which has no token before it and gets no log-probability.
        tokenizer: Gives the bytes of tokens.
        hidden_token_ids: Ids that add nothing to the text that offsets count in.
    """
    detokenizer = IncrementalDetokenizer(tokenizer, hidden_token_ids=hidden_token_ids)
    first, *others = prompt_token_ids
    data = tokenizer.token_bytes(first)
    decoded = [TokenLogprob(first, _text(data), data, logprob=None, rank=None, text_offset=0)]
    text_offset = len(detokenizer.push((first,)))
    for token_id, score in zip(others, scores, strict=True):
        decoded.append(decode_logprob(token_id, score, text_offset, tokenizer))
        text_offset += len(detokenizer.push((token_id,)))
    return tuple(decoded)


def _decode_top(token_id: int, logprob: float, tokenizer: Tokenizer) -> TopLogprob:
    data = tokenizer.token_bytes(token_id)
    return TopLogprob(token_id, _text(data), data, logprob)


def _text(data: bytes) -> str:
    """What can be shown of a token alone; parts of a character become U+FFFD."""
    return data.decode(errors="replace")
