"""Several outputs of one request as one."""

from collections.abc import Sequence

from minivllm_runtime.messages import TokenLogprobs, TokenOutput


def join_outputs(outputs: Sequence[TokenOutput]) -> TokenOutput:
    """One output that says what all of them say.

    Args:
        outputs: At least one, all of one request, in order.
    """
    first, last = outputs[0], outputs[-1]
    if len(outputs) == 1:
        return first
    wants_logprobs = any(output.logprobs is not None for output in outputs)
    logprobs: list[TokenLogprobs] = [each for output in outputs for each in output.logprobs or ()]
    return last._replace(
        token_ids=tuple([token_id for output in outputs for token_id in output.token_ids]),
        logprobs=tuple(logprobs) if wants_logprobs else None,
        prompt_logprobs=first.prompt_logprobs,
    )
