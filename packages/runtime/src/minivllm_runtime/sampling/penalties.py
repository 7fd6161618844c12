"""Repetition, presence and frequency penalties.

Which tokens were generated before is counted anew in every step from the ids on the device: the id that the step in
flight samples is nowhere else, and neither chunks nor preemption can make counts differ from what they are alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from minivllm_runtime.device_state.staging import upload
from minivllm_runtime.messages import EngineRequest

_LARGEST_LOGIT = 1e30
"""So that no penalty, however extreme, makes infinities, which a softmax cannot tell apart."""


@dataclass(frozen=True, slots=True)
class PenalizedRow:
    """One row of a step whose request uses penalties.

    Attributes:
        row: Index among the rows that sample.
        slot: Row of `token_ids` that holds its ids.
        num_prompt_tokens, num_tokens: Known ids; the prompt comes first, then the output.
        request: Gives the penalties.
    """

    row: int
    slot: int
    num_prompt_tokens: int
    num_tokens: int
    request: EngineRequest


@dataclass(frozen=True, slots=True)
class Penalties:
    """Penalties of P rows of a step.

    Attributes:
        rows: [P] int64; which rows they are.
        token_ids: [P, L] int64; their ids, followed by anything.
        num_prompt_tokens, num_tokens: [P, 1] int64.
        repetition: [P, 1] float32; None if no row has one.
        presence, frequency: [P, 1] float32; None if no row has either.
    """

    rows: Tensor
    token_ids: Tensor
    num_prompt_tokens: Tensor
    num_tokens: Tensor
    repetition: Tensor | None
    presence: Tensor | None
    frequency: Tensor | None

    @classmethod
    def build(cls, penalized: Sequence[PenalizedRow], token_ids: Tensor) -> "Penalties":
        """Gather what is known of the rows from `token_ids` [slots, max_model_len]."""
        integers = [(each.row, each.slot, each.num_prompt_tokens, each.num_tokens) for each in penalized]
        rows, slots, num_prompt_tokens, num_tokens = upload(torch.tensor(integers), token_ids.device).unbind(
            1
        )
        requests = [each.request for each in penalized]
        floats = [
            (
                min(max(request.repetition_penalty, 1 / _LARGEST_LOGIT), _LARGEST_LOGIT),
                request.presence_penalty,
                request.frequency_penalty,
            )
            for request in requests
        ]
        repetition, presence, frequency = upload(torch.tensor(floats), token_ids.device).T[:, :, None]
        repeats = any(request.repetition_penalty != 1 for request in requests)
        counts = any(request.presence_penalty or request.frequency_penalty for request in requests)
        return cls(
            rows=rows,
            token_ids=token_ids[slots, : max(each.num_tokens for each in penalized)],
            num_prompt_tokens=num_prompt_tokens[:, None],
            num_tokens=num_tokens[:, None],
            repetition=repetition if repeats else None,
            presence=presence if counts else None,
            frequency=frequency if counts else None,
        )

    def apply(self, logits: Tensor) -> None:
        """Change the rows of `logits` [S, V] float32 in place.

        Repetition counts prompt and output, once per token; presence and frequency count the output.
        """
        changed = logits[self.rows]
        if self.repetition is not None:
            penalized = torch.where(changed > 0, changed / self.repetition, changed * self.repetition)
            changed = torch.where(self._count(0, changed.shape[1]) > 0, penalized, changed)
        if self.presence is not None and self.frequency is not None:
            counts = self._count(self.num_prompt_tokens, changed.shape[1])
            changed -= self.frequency * counts + self.presence * (counts > 0)
        logits[self.rows] = changed.clamp_(-_LARGEST_LOGIT, _LARGEST_LOGIT)

    def _count(self, start: Tensor | int, vocab_size: int) -> Tensor:
        """How often each id occurs from position `start` on: [P, V] float32; ids past V are left out."""
        positions = torch.arange(self.token_ids.shape[1], device=self.token_ids.device)
        counted = (positions >= start) & (positions < self.num_tokens) & (self.token_ids < vocab_size)
        counts = torch.zeros(len(self.token_ids), vocab_size, device=self.token_ids.device)
        return counts.scatter_add_(1, self.token_ids.where(counted, 0), counted.float())
