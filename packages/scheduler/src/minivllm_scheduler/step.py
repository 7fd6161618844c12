"""One step, while it is put together (StepDraft) and while its result is awaited (StepInFlight)."""

from typing import NamedTuple

from minivllm_scheduler.errors import UnexpectedResult
from minivllm_scheduler.output import Admitted, ScheduledRequest, SchedulerOutput, StepResult, new_row
from minivllm_scheduler.request import TOKEN_ID_LIMIT, RequestState

Progress = tuple[RequestState, int, int, bool]
"""A row as its update needs it: the request, tokens computed before and after, whether it samples.

A plain tuple because it is taken apart once per request and step, three times as fast as a NamedTuple.
"""


class StepInFlight(NamedTuple):
    """A scheduled step, with what its update needs.

    Attributes:
        output: The step.
        progress: What its rows compute, in their order.
        num_samples: Rows that sample.
    """

    output: SchedulerOutput
    progress: tuple[Progress, ...]
    num_samples: int

    def sampled_ids(self, result: StepResult) -> list[int]:
        """Returns the ids of this step's result, one per row that samples.

        Raises:
            UnexpectedResult: `result` is not that of this step.
        """
        step_id = self.output.step_id
        if result.step_id != step_id:
            raise UnexpectedResult(
                f"got the result of step {result.step_id}, expected that of step {step_id}"
            )
        try:
            ids = [token_id for (token_id,) in result.token_ids]
        except ValueError:  # an entry of another length
            ids = []
        if len(ids) != self.num_samples:
            num_ids = sum(map(len, result.token_ids))
            raise UnexpectedResult(
                f"step {step_id} returned {num_ids} ids in {len(result.token_ids)} entries, "
                f"expected one in each of {self.num_samples}"
            )
        if ids and (min(ids) < 0 or max(ids) >= TOKEN_ID_LIMIT):
            raise UnexpectedResult(
                f"step {step_id} returned ids from {min(ids)} to {max(ids)}, "
                f"they must lie in [0, {TOKEN_ID_LIMIT})"
            )
        return ids


class StepDraft:
    """A step that rows are added to.

    Args:
        budget: Tokens that its rows may have together.

    Attributes:
        budget: Tokens left.
        out_of_room: Whether a running request found no free block.
    """

    __slots__ = ("_admitted", "_num_samples", "_progress", "_rows", "budget", "out_of_room")

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.out_of_room = False
        self._rows: list[ScheduledRequest] = []
        self._progress: list[Progress] = []
        self._admitted: list[Admitted] = []
        self._num_samples = 0

    @property
    def is_empty(self) -> bool:
        """Whether the step has no row."""
        return not self._rows

    def admit(self, state: RequestState, block_ids: tuple[int, ...]) -> None:
        """Announces a request whose first row follows; its hit is already counted as computed."""
        self._admitted.append(
            Admitted(
                state.request_id,
                state.keys.tokens(),
                state.num_prompt_tokens,
                block_ids,
                state.num_computed_tokens,
            )
        )

    def add_row(self, state: RequestState, num_tokens: int, new_block_ids: tuple[int, ...]) -> None:
        """Lets a request compute `num_tokens` more; it samples if it catches up with that."""
        start = state.num_computed_tokens
        state.num_computed_tokens = end = start + num_tokens
        samples = end == state.num_known_tokens + state.num_placeholders
        if samples:
            state.num_placeholders += 1
            self._num_samples += 1
        self.budget -= num_tokens
        row = (state.request_id, start, num_tokens, new_block_ids, samples)
        self._rows.append(new_row(ScheduledRequest, row))
        self._progress.append((state, start, end, samples))

    def finish(self, step_id: int, released: tuple[str, ...]) -> StepInFlight:
        """Returns the step, which no row is added to any more."""
        output = SchedulerOutput(step_id, tuple(self._rows), tuple(self._admitted), released)
        return StepInFlight(output, tuple(self._progress), self._num_samples)
