"""Turns the rows of one step into the tensors that the model reads."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from minivllm_runtime.attention.step_attention import BatchLayout
from minivllm_runtime.worker.request_states import RequestStates
from minivllm_scheduler import ScheduledRequest


@dataclass(frozen=True, slots=True)
class InputBatch:
    """R rows with T tokens in all, of which S rows sample.

    Attributes:
        input_ids: [T] int64.
        positions: [T] int64.
        layout: Where the tokens lie in step and cache.
        sampling_rows: The rows that sample, in row order, on the host.
        sampling_tokens: [S] int64; the last token of each of those rows.
        next_slots, next_positions: [S] int64; where the sampled ids go in the request states.
    """

    input_ids: Tensor
    positions: Tensor
    layout: BatchLayout
    sampling_rows: tuple[ScheduledRequest, ...]
    sampling_tokens: Tensor
    next_slots: Tensor
    next_positions: Tensor

    @classmethod
    def build(cls, rows: Sequence[ScheduledRequest], states: RequestStates, block_size: int) -> "InputBatch":
        """Gather ids and block tables of `rows` from the states; input ids never visit the host."""
        device = states.token_ids.device
        query_lens = [row.num_tokens for row in rows]
        context_lens = [row.start + row.num_tokens for row in rows]
        host = torch.tensor([[states.slot(row.request_id) for row in rows], query_lens, context_lens])
        slots, lens, contexts = host.to(device, non_blocking=True).unbind(0)

        ends = lens.cumsum(0)
        num_tokens = sum(query_lens)
        token_slots = slots.repeat_interleave(lens, output_size=num_tokens)
        # A token's position is its index in the step, shifted by where its row's tokens end in step and context.
        shift = (contexts - ends).repeat_interleave(lens, output_size=num_tokens)
        positions = torch.arange(num_tokens, device=device) + shift
        blocks = states.block_tables[token_slots, positions // block_size].long()

        # Indices, not a mask: how many there are must be known without asking the device.
        sampling = torch.tensor([index for index, row in enumerate(rows) if row.samples], dtype=torch.int64)
        sampling = sampling.to(device, non_blocking=True)
        return cls(
            input_ids=states.token_ids[token_slots, positions],
            positions=positions,
            layout=BatchLayout(
                query_lens=query_lens,
                context_lens=context_lens,
                query_start_loc=torch.cat((ends.new_zeros(1), ends)).int(),
                context_lens_device=contexts.int(),
                block_tables=states.block_tables[slots],
                slot_mapping=blocks * block_size + positions % block_size,
            ),
            sampling_rows=tuple(row for row in rows if row.samples),
            sampling_tokens=(ends - 1)[sampling],
            next_slots=slots[sampling],
            next_positions=contexts[sampling],
        )
