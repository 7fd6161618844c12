"""A finished submission in the shape that users of the offline engine know."""

from collections.abc import Iterable, Sequence

from minivllm_runtime.engine.outbox import Outbox
from minivllm_runtime.messages import EngineRequest
from minivllm_runtime.outputs import ChoiceDelta, CompletionOutput, RequestOutput


def collect(
    submission_id: str, requests: Sequence[EngineRequest], prompt: str | None, deltas: Iterable[ChoiceDelta]
) -> RequestOutput:
    """Join all deltas of a submission of one prompt.

    Args:
        submission_id: Becomes the id of the output.
        requests: As submitted, one per choice.
        prompt: Its text; None where it was given as ids.
        deltas: All deltas of all choices, each choice's in order.
    """
    outbox = Outbox()
    for delta in deltas:
        outbox.merge(delta)
    choices = outbox.take()
    assert len(choices) == len(requests), "every choice has a delta"
    return RequestOutput(
        request_id=submission_id,
        prompt=prompt,
        prompt_token_ids=requests[0].prompt_token_ids,
        outputs=tuple(map(_completion, choices)),
        num_cached_tokens=choices[0].num_cached_tokens,
        prompt_logprobs=choices[0].prompt_logprobs,
    )


def _completion(delta: ChoiceDelta) -> CompletionOutput:
    assert delta.finish_reason is not None, "the choice is finished"
    return CompletionOutput(
        index=delta.index,
        text=delta.text,
        token_ids=delta.token_ids,
        finish_reason=delta.finish_reason,
        stop_reason=delta.stop_reason,
        logprobs=delta.logprobs,
    )
