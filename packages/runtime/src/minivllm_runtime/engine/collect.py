"""Finished submissions in the shape that users of the offline engine know."""

from collections.abc import Iterable, Sequence

from minivllm_runtime.engine.outbox import Outbox
from minivllm_runtime.messages import EngineRequest
from minivllm_runtime.outputs import ChoiceDelta, CompletionOutput, RequestOutput


def collect(
    submission_id: str,
    requests: Sequence[EngineRequest],
    prompts: Sequence[str | None],
    deltas: Iterable[ChoiceDelta],
) -> tuple[RequestOutput, ...]:
    """Join all deltas of one submission.

    Args:
        submission_id: Becomes the id of every output.
        requests: As submitted, prompt-major.
        prompts: Text of each prompt; None where it was given as ids.
        deltas: All deltas of all choices, each choice's in order.

    Returns:
        One output per prompt, in the order of the prompts.
    """
    outbox = Outbox()
    for delta in deltas:
        outbox.merge(delta)
    choices = outbox.take()
    assert len(choices) == len(requests), "every choice has a delta"
    n = len(requests) // len(prompts)
    return tuple(
        RequestOutput(
            request_id=submission_id,
            prompt=prompt,
            prompt_token_ids=requests[first].prompt_token_ids,
            outputs=tuple(_completion(delta, delta.index - first) for delta in choices[first : first + n]),
            num_cached_tokens=choices[first].num_cached_tokens,
            prompt_logprobs=choices[first].prompt_logprobs,
        )
        for first, prompt in zip(range(0, len(requests), n), prompts, strict=True)
    )


def _completion(delta: ChoiceDelta, index: int) -> CompletionOutput:
    assert delta.finish_reason is not None, "the choice is finished"
    return CompletionOutput(
        index=index,
        text=delta.text,
        token_ids=delta.token_ids,
        finish_reason=delta.finish_reason,
        stop_reason=delta.stop_reason,
        logprobs=delta.logprobs,
    )
