"""What crosses the scheduler's border: named tuples of ints, strings and tuples, never live state.

One step is a `SchedulerOutput` (to the executor), a `StepResult` (back from it) and some `RequestUpdate`s (to
the caller). Rows are NamedTuples because a step creates one per running request: they cost a third of a
frozen dataclass.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from minivllm_scheduler.request import FinishReason

new_row: Final = tuple.__new__
"""Makes a NamedTuple from its class and a tuple of all its fields, in half the time of the class's constructor,
which is a Python function around this. For what is made once per request and step."""


class ScheduledRequest(NamedTuple):
    """One row of a step: a request computes the tokens at positions `start … start + num_tokens - 1`.

    Attributes:
        request_id: Whose row it is; at most one row per request in a step.
        start: Tokens of the request computed before this step, prefix-cache hits included.
        num_tokens: Tokens computed in this row, at least 1. Where such a token is not known yet, it is the
            one sampled by the previous step, and stays on the device.
        new_block_ids: Blocks appended to the request's block table for this row; `()` in the step that admits
            it.
        samples: Whether the row reaches the request's last token, so that the next token is sampled from it.
    """

    request_id: str
    start: int
    num_tokens: int
    new_block_ids: tuple[int, ...]
    samples: bool


class Admitted(NamedTuple):
    """A request that starts running, new and resumed alike; it has a row in the same step.

    Attributes:
        request_id: The request.
        token_ids: All ids known of it: the prompt, then the outputs of earlier runs.
        num_prompt_tokens: How many of `token_ids` are prompt.
        block_ids: Every block the request holds at admission, those of this step's row included; the row's
            own `new_block_ids` is therefore empty.
        num_cached_tokens: Leading tokens whose KV the prefix cache supplies: the row's `start`.
    """

    request_id: str
    token_ids: Sequence[int]
    num_prompt_tokens: int
    block_ids: tuple[int, ...]
    num_cached_tokens: int


class SchedulerOutput(NamedTuple):
    """What one step computes. An executor processes `released`, then `admitted`, then `rows`.

    Attributes:
        step_id: Counts the scheduled steps from 0.
        rows: At least one; their order is that of `StepResult.token_ids`.
        admitted: Requests that start running in this step.
        released: Requests that ended or were preempted since the last output: the executor drops what it
            keeps for them, and ignores ids it does not know. An id may also be in `admitted` of the same
            output (a request resumed, or an id used again).
    """

    step_id: int
    rows: tuple[ScheduledRequest, ...]
    admitted: tuple[Admitted, ...]
    released: tuple[str, ...]


class StepResult(NamedTuple):
    """What a step sampled.

    Attributes:
        step_id: The step it answers.
        token_ids: One entry of one id per row with `samples`, in row order.
    """

    step_id: int
    token_ids: tuple[tuple[int, ...], ...]


class RequestUpdate(NamedTuple):
    """New output tokens of a request, after a step's result was taken in.

    Attributes:
        request_id: The request.
        token_ids: Its new output ids; a sampled stop id is one of them.
        finish_reason: Why it ended with these ids, or None while it goes on.
        num_cached_tokens: Prompt tokens that the prefix cache supplied when it was first admitted.
    """

    request_id: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None
    num_cached_tokens: int
