"""Which tokens end a generation because the caller named them."""

from typing import Protocol

from minivllm_runtime.sampling_params import SamplingParams


class SpecialTokens(Protocol):
    """The part of a tokenizer that knows special tokens by their text."""

    def special_token_id(self, text: str) -> int | None:
        """The id of the special token with exactly this text; None if there is none."""
        ...


def named_stop_tokens(params: SamplingParams, tokenizer: SpecialTokens) -> dict[int, int | str]:
    """Stop ids the caller named, each with what to report as its stop reason: the id, or the stop string.

    A stop string that is exactly one special token is matched by its id as well: with special tokens left out
    of the text, it would never be found there.
    """
    named: dict[int, int | str] = {token_id: token_id for token_id in params.stop_token_ids}
    for stop in params.stop:
        token_id = tokenizer.special_token_id(stop)
        if token_id is not None:
            named[token_id] = stop
    return named
