"""Log-probabilities of prompt tokens, collected while the prompt is computed in one chunk or many."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from minivllm_runtime.device_state.staging import HostCopy, upload
from minivllm_runtime.messages import EngineRequest, TokenLogprobs
from minivllm_runtime.sampling.logprobs import logprob_table, read_table
from minivllm_scheduler import ScheduledRequest

_TOKENS_AT_ONCE = 64
"""Logits of a whole chunk of prompt would take more memory than the model's activations."""


class _Prompt:
    """How far one prompt is scored: positions launched, and what has arrived of them."""

    def __init__(self, request: EngineRequest) -> None:
        self.token_ids = request.prompt_token_ids
        self.num_top = request.prompt_logprobs or 0
        self.num_scores = len(request.prompt_token_ids) - 1  # the first token has none before it
        self.num_launched = 0
        self.arrived: list[TokenLogprobs] = []


class PromptScores(NamedTuple):
    """Scores of a piece of one prompt, on their way to the host."""

    prompt: _Prompt
    table: HostCopy


class PromptScorer:
    """Scores the prompts of the requests that ask for it.

    What was scored once is not scored again when a preempted request computes its prompt anew.

    Args:
        compute_logits: Logits [T, V] of final hidden states [T, H].
        num_ids: As in `logprob_table`.
    """

    def __init__(self, compute_logits: Callable[[Tensor], Tensor], num_ids: int) -> None:
        self._compute_logits = compute_logits
        self._num_ids = num_ids
        self._prompts: dict[str, _Prompt] = {}

    def add_request(self, request: EngineRequest) -> None:
        """Score this request's prompt, if it asks for that."""
        if request.prompt_logprobs is not None:
            self._prompts[request.request_id] = _Prompt(request)

    def remove_request(self, request_id: str) -> None:
        """Forget a request that ended."""
        self._prompts.pop(request_id, None)

    @property
    def has_prompts(self) -> bool:
        """Whether any prompt is scored, or its scores have not been taken."""
        return bool(self._prompts)

    def has_work(self, rows: Sequence[ScheduledRequest]) -> bool:
        """Whether a row of the step computes prompt tokens that are to be scored."""
        return bool(self._prompts) and any(self._unscored(row) is not None for row in rows)

    def score(self, rows: Sequence[ScheduledRequest], hidden: Tensor) -> tuple[PromptScores, ...]:
        """Launch the scores that the rows of a step make possible.

        Args:
            rows: All rows of the step.
            hidden: [T, H], final hidden states of all their tokens, row after row.
        """
        launched: list[PromptScores] = []
        first = 0  # place of the row's first token in the step
        for row in rows:
            unscored = self._unscored(row)
            if unscored is not None:
                prompt, start, end = unscored
                places = slice(first + start - row.start, first + end - row.start)
                launched.append(PromptScores(prompt, HostCopy(self._table(prompt, start, hidden[places]))))
                prompt.num_launched = end
            first += row.num_tokens
        return tuple(launched)

    def arrive(self, scores: Sequence[PromptScores]) -> None:
        """Wait for what a step launched."""
        for prompt, table in scores:
            rows = table.wait()
            prompt.arrived += read_table(rows, [prompt.num_top] * len(rows))

    def take(self, request_id: str) -> tuple[TokenLogprobs, ...] | None:
        """The scores of all tokens but the first, once; None while they are incomplete, and ever after."""
        prompt = self._prompts.get(request_id)
        if prompt is None or len(prompt.arrived) < prompt.num_scores:
            return None
        del self._prompts[request_id]
        return tuple(prompt.arrived)

    def _unscored(self, row: ScheduledRequest) -> tuple[_Prompt, int, int] | None:
        """The prompt of a row and the positions, from start to end, whose next token it scores."""
        prompt = self._prompts.get(row.request_id)
        if prompt is None:
            return None
        start = max(row.start, prompt.num_launched)
        end = min(row.start + row.num_tokens, prompt.num_scores)
        return (prompt, start, end) if start < end else None

    def _table(self, prompt: _Prompt, start: int, hidden: Tensor) -> Tensor:
        host_ids = torch.tensor(prompt.token_ids[start + 1 : start + 1 + len(hidden)])
        next_ids = upload(host_ids, hidden.device)
        pieces = zip(
            torch.split(hidden, _TOKENS_AT_ONCE), torch.split(next_ids, _TOKENS_AT_ONCE), strict=True
        )
        return torch.cat(
            [
                logprob_table(self._compute_logits(states), ids, prompt.num_top, self._num_ids)
                for states, ids in pieces
            ]
        )
