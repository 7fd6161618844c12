"""The sampling parameters of the rows of one step, as tensors."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from minivllm_runtime.engine.messages import EngineRequest
from minivllm_runtime.sampling.philox import uniforms
from minivllm_runtime.sampling_params import GREEDY_TEMPERATURE


@dataclass(frozen=True, slots=True)
class RandomDraws:
    """Parameters of a step in which at least one row draws at random. All are [S].

    Attributes:
        greedy: bool; rows that take the most probable token all the same.
        temperature: float32; 1 for greedy rows.
        top_k: int64, at least 1; None if no row restricts it. Rows without a limit hold the vocabulary's size.
        top_p, min_p: float32; None if no row restricts it.
        uniform: float64 in [0, 1).
    """

    greedy: Tensor
    temperature: Tensor
    top_k: Tensor | None
    top_p: Tensor | None
    min_p: Tensor | None
    uniform: Tensor


@dataclass(frozen=True, slots=True)
class SamplingBatch:
    """What the sampler needs for the S rows of a step that sample.

    Attributes:
        banned: (rows, ids), both [B] int64: pairs that must not be sampled; None if there are none.
        random: None if every row is greedy.
    """

    banned: tuple[Tensor, Tensor] | None
    random: RandomDraws | None

    @classmethod
    def build(
        cls,
        requests: Sequence[EngineRequest],
        output_indices: Sequence[int],
        vocab_size: int,
        device: torch.device,
    ) -> "SamplingBatch":
        """Collect the parameters of `requests`, which sample their output number `output_indices`."""
        return cls(
            banned=_banned_pairs(requests, output_indices, device),
            random=_random_draws(requests, output_indices, vocab_size, device),
        )


def _banned_pairs(
    requests: Sequence[EngineRequest], output_indices: Sequence[int], device: torch.device
) -> tuple[Tensor, Tensor] | None:
    pairs = [
        (row, token_id)
        for row, (request, index) in enumerate(zip(requests, output_indices, strict=True))
        if index < request.min_tokens
        for token_id in sorted(request.stop_token_ids)
    ]
    if not pairs:
        return None
    rows, ids = torch.tensor(pairs, dtype=torch.int64, device=device).unbind(1)
    return rows, ids


def _random_draws(
    requests: Sequence[EngineRequest], output_indices: Sequence[int], vocab_size: int, device: torch.device
) -> RandomDraws | None:
    greedy = [request.temperature < GREEDY_TEMPERATURE for request in requests]
    if all(greedy):
        return None

    def column(values: list[float], *, used: bool, dtype: torch.dtype = torch.float32) -> Tensor | None:
        return torch.tensor(values, dtype=dtype, device=device) if used else None

    # A greedy row's own limits must not slow the others down, nor matter to it.
    drawing = [request for request, is_greedy in zip(requests, greedy, strict=True) if not is_greedy]
    draws = uniforms([r.seed for r in requests], [r.choice for r in requests], output_indices)
    return RandomDraws(
        greedy=torch.tensor(greedy, device=device),
        temperature=torch.tensor(
            [1.0 if is_greedy else r.temperature for r, is_greedy in zip(requests, greedy, strict=True)],
            device=device,
        ),
        top_k=column(
            [min(r.top_k or vocab_size, vocab_size) for r in requests],
            used=any(0 < r.top_k < vocab_size for r in drawing),
            dtype=torch.int64,
        ),
        top_p=column([r.top_p for r in requests], used=any(r.top_p < 1 for r in drawing)),
        min_p=column([r.min_p for r in requests], used=any(r.min_p > 0 for r in drawing)),
        uniform=torch.from_numpy(draws).to(device),
    )
