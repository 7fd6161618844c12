"""What the sampler prepares once for each request."""

from dataclasses import dataclass

import torch
from torch import Tensor

from minivllm_runtime.device_state.staging import upload
from minivllm_runtime.messages import EngineRequest


@dataclass(frozen=True, slots=True)
class RequestSampling:
    """A request as the sampler sees it, from its arrival to its end.

    Attributes:
        request: As it arrived.
        is_adjusted: Its logits are changed, of some steps at least, before one is drawn.
        uses_penalties: Repetition, presence or frequency.
        stop_ids: [B] int64 on the device, the ids banned until `min_tokens`; None without a `min_tokens`.
        bias: (ids [B] int64, values [B] float32) on the device; None without a bias.
    """

    request: EngineRequest
    is_adjusted: bool
    uses_penalties: bool
    stop_ids: Tensor | None
    bias: tuple[Tensor, Tensor] | None

    @classmethod
    def prepare(cls, request: EngineRequest, vocab_size: int, device: torch.device) -> "RequestSampling":
        """Copy the request's lists to the device; ids from `vocab_size` on are never sampled and left out."""
        uses_penalties = request.repetition_penalty != 1 or bool(
            request.presence_penalty or request.frequency_penalty
        )
        bias = {token_id: value for token_id, value in request.logit_bias if token_id < vocab_size}
        stop_ids = sorted(i for i in request.stop_token_ids if i < vocab_size) if request.min_tokens else []
        return cls(
            request=request,
            is_adjusted=uses_penalties or bool(bias or stop_ids) or request.json_schema is not None,
            uses_penalties=uses_penalties,
            stop_ids=upload(torch.tensor(stop_ids), device) if stop_ids else None,
            bias=(
                upload(torch.tensor(list(bias)), device),
                upload(torch.tensor(list(bias.values()), dtype=torch.float32), device),
            )
            if bias
            else None,
        )
