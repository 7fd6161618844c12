"""Which tokens end a generation because the caller named them."""

from minivllm_runtime.sampling_params import SamplingParams
from minivllm_runtime.tokenizer import Tokenizer


def named_stop_tokens(params: SamplingParams, tokenizer: Tokenizer) -> dict[int, int | str]:
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
