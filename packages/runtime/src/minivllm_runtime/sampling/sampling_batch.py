"""The sampling parameters of the rows of one step, as tensors."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from minivllm_runtime.device_state.request_states import RequestStates
from minivllm_runtime.device_state.staging import upload
from minivllm_runtime.sampling.grammar_masks import GrammarState, allowed_words
from minivllm_runtime.sampling.penalties import PenalizedRow, Penalties
from minivllm_runtime.sampling.philox import uniforms
from minivllm_runtime.sampling.request_sampling import RequestSampling


@dataclass(frozen=True, slots=True)
class RandomDraws:
    """Parameters of a step in which at least one row draws at random. All are [S].

    Attributes:
        greedy: bool; rows that take the most probable token all the same.
        temperature: float32; 1 for greedy rows.
        top_k: int64, at least 1; None if no row restricts it. Rows without a limit hold the vocabulary's size.
        largest_top_k: The largest limit, known without asking the device.
        top_p, min_p: float32; None if no row restricts it.
        uniform: float64 in [0, 1).
    """

    greedy: Tensor
    temperature: Tensor
    top_k: Tensor | None
    largest_top_k: int
    top_p: Tensor | None
    min_p: Tensor | None
    uniform: Tensor


@dataclass(frozen=True, slots=True)
class SamplingBatch:
    """What the sampler needs for the S rows of a step that sample; None wherever no row asks for a thing.

    Attributes:
        penalties: Repetition, presence and frequency.
        bias: (rows [B] int64, ids [B] int64, values [B] float32), each pair of row and id once.
        banned: (rows, ids), both [B] int64: pairs that must not be sampled.
        allowed: (rows [G] int64, words [G, ...] int32), the rows with a grammar and what it allows; see grammar_masks.
        random: None if every row is greedy, and on a CUDA device, whose kernel finds the same in the request states.
    """

    penalties: Penalties | None = None
    bias: tuple[Tensor, Tensor, Tensor] | None = None
    banned: tuple[Tensor, Tensor] | None = None
    allowed: tuple[Tensor, Tensor] | None = None
    random: RandomDraws | None = None

    @classmethod
    def build(
        cls,
        rows: Sequence[RequestSampling],
        num_tokens: Sequence[int],
        states: RequestStates,
        vocab_size: int,
        grammars: Sequence[tuple[int, GrammarState]] = (),
    ) -> "SamplingBatch":
        """Collect what the rows ask for. On a CUDA device nothing here waits for it.

        Args:
            rows: The requests whose rows sample.
            num_tokens: How many ids each of them has: the position of the id it samples.
            states: Holds their ids.
            vocab_size: Number of ids that may be sampled.
            grammars: Those of the rows that have one, each with the index of its row.
        """
        device = states.token_ids.device
        draws_here = device.type != "cuda" and not all(row.request.is_greedy for row in rows)
        if not (draws_here or any(row.is_adjusted for row in rows)):
            return cls()
        num_prompt_tokens = [states.num_prompt_tokens(row.request.request_id) for row in rows]
        output_indices = [total - prompt for total, prompt in zip(num_tokens, num_prompt_tokens, strict=True)]
        penalized = [
            PenalizedRow(index, states.slot(row.request.request_id), prompt, total, row.request)
            for index, (row, prompt, total) in enumerate(
                zip(rows, num_prompt_tokens, num_tokens, strict=True)
            )
            if row.uses_penalties
        ]
        return cls(
            penalties=Penalties.build(penalized, states.token_ids) if penalized else None,
            bias=_bias(rows, device),
            banned=_banned(rows, output_indices, device),
            allowed=_allowed(grammars, vocab_size, device) if grammars else None,
            random=_random_draws(rows, output_indices, vocab_size) if draws_here else None,
        )


def _bias(rows: Sequence[RequestSampling], device: torch.device) -> tuple[Tensor, Tensor, Tensor] | None:
    biased = [(index, row.bias) for index, row in enumerate(rows) if row.bias is not None]
    if not biased:
        return None
    ids = [bias[0] for _, bias in biased]
    return (
        _spread([index for index, _ in biased], ids, device),
        torch.cat(ids),
        torch.cat([bias[1] for _, bias in biased]),
    )


def _banned(
    rows: Sequence[RequestSampling], output_indices: Sequence[int], device: torch.device
) -> tuple[Tensor, Tensor] | None:
    banned = [
        (index, row.stop_ids)
        for index, (row, output_index) in enumerate(zip(rows, output_indices, strict=True))
        if row.stop_ids is not None and output_index < row.request.min_tokens
    ]
    if not banned:
        return None
    ids = [stop_ids for _, stop_ids in banned]
    return _spread([index for index, _ in banned], ids, device), torch.cat(ids)


def _allowed(
    grammars: Sequence[tuple[int, GrammarState]], vocab_size: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    rows = torch.tensor([index for index, _ in grammars])
    words = allowed_words([state for _, state in grammars], vocab_size)
    return upload(rows, device), upload(words, device)


def _spread(rows: Sequence[int], ids: Sequence[Tensor], device: torch.device) -> Tensor:
    """The row of every id of `ids`, [sum of their lengths] int64."""
    lens = torch.tensor([len(each) for each in ids])
    return upload(torch.tensor(rows).repeat_interleave(lens), device)


def _random_draws(
    rows: Sequence[RequestSampling], output_indices: Sequence[int], vocab_size: int
) -> RandomDraws:
    # A greedy row's own limits must not slow the others down, nor matter to it.
    drawing = [row.request for row in rows if not row.request.is_greedy]
    requests = [row.request for row in rows]
    greedy = [row.request.is_greedy for row in rows]
    floats = [
        [1.0 if row.request.is_greedy else row.request.temperature for row in rows],
        [request.top_p for request in requests],
        [request.min_p for request in requests],
    ]
    temperature, top_p, min_p = torch.tensor(floats, dtype=torch.float32)
    limits = [request.top_k for request in drawing if 0 < request.top_k < vocab_size]
    top_k = [min(request.top_k or vocab_size, vocab_size) for request in requests] if limits else []
    draws = uniforms([r.seed for r in requests], [r.choice for r in requests], output_indices)
    return RandomDraws(
        greedy=torch.tensor(greedy),
        temperature=temperature,
        top_k=torch.tensor(top_k) if limits else None,
        largest_top_k=max(limits, default=vocab_size),
        top_p=top_p if any(request.top_p < 1 for request in drawing) else None,
        min_p=min_p if any(request.min_p > 0 for request in drawing) else None,
        uniform=torch.from_numpy(draws),
    )
