"""Turns the rows of one step into the tensors that the model reads."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from minivllm_runtime.attention.step_attention import BatchLayout
from minivllm_runtime.device_state.request_states import RequestStates
from minivllm_runtime.device_state.staging import host_tensor, upload
from minivllm_scheduler import ScheduledRequest


@dataclass(frozen=True, slots=True)
class InputBatch:
    """R rows with T tokens in all, of which S rows sample.

    Attributes:
        input_ids: [T] int64.
        positions: [T] int64.
        layout: Where the tokens lie in step and cache.
        sampling_tokens: [S] int64; the last token of each row that samples, in row order. None: every token.
        next_slots, next_positions: [S] int64, of decode batches int32; where the sampled ids go in the request states.
    """

    input_ids: Tensor
    positions: Tensor
    layout: BatchLayout
    sampling_tokens: Tensor | None
    next_slots: Tensor
    next_positions: Tensor

    @classmethod
    def build(cls, rows: Sequence[ScheduledRequest], states: RequestStates, block_size: int) -> "InputBatch":
        """Gather ids and block tables of `rows` from the states; input ids never visit the host."""
        device = states.token_ids.device
        query_lens = [row.num_tokens for row in rows]
        context_lens = [row.start + row.num_tokens for row in rows]
        host = host_tensor((states.slots([row.request_id for row in rows]), query_lens, context_lens))
        slots, lens, contexts = upload(host, device).unbind(0)

        ends = lens.cumsum(0)
        num_tokens = sum(query_lens)
        token_slots = slots.repeat_interleave(lens, output_size=num_tokens)
        # A token's position is its index in the step, shifted by where its row's tokens end in step and context.
        shift = (contexts - ends).repeat_interleave(lens, output_size=num_tokens)
        positions = torch.arange(num_tokens, device=device) + shift
        blocks = states.block_tables[token_slots, positions // block_size].long()

        # Indices, not a mask: how many there are must be known without asking the device.
        sampling = upload(host_tensor([index for index, row in enumerate(rows) if row.samples]), device)
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
            sampling_tokens=(ends - 1)[sampling],
            next_slots=slots[sampling],
            next_positions=contexts[sampling],
        )

    @classmethod
    def decode(
        cls, rows: Tensor, query_start_loc: Tensor, states: RequestStates, block_size: int
    ) -> "InputBatch":
        """The batch of R rows of one token each, all of which sample, on a CUDA device.

        One launch of a fixed shape: a CUDA graph may hold it.

        Args:
            rows: [4, R] int64 on the device: slots, positions, not used, and the slots that receive the sampled ids.
            query_start_loc: [R + 1] int32, 0 to R.
            states: Of the requests.
            block_size: Tokens per KV block.
        """
        # Imported here: a CPU needs no kernels.
        from minivllm_kernels.decode_inputs import decode_inputs

        slots, positions, _, next_slots = rows.unbind(0)
        step = decode_inputs(slots, positions, states.token_ids, states.block_tables, block_size)
        lens = (1,) * rows.shape[1]
        return cls(
            input_ids=step.input_ids,
            positions=positions,
            layout=BatchLayout(
                query_lens=lens,
                context_lens=lens,
                query_start_loc=query_start_loc,
                context_lens_device=step.context_lens,
                block_tables=step.block_tables,
                slot_mapping=step.slot_mapping,
                longest_first=step.longest_first,
            ),
            sampling_tokens=None,
            next_slots=next_slots,
            next_positions=step.context_lens,
        )

    @classmethod
    def padded(cls, rows: Tensor, num_tokens: int, states: RequestStates, block_size: int) -> "InputBatch":
        """The batch of R rows with T tokens at most; every row counts as one that samples.

        All shapes are fixed by R and T and nothing is read back to the host: a CUDA graph may hold it.

        Args:
            rows: [4, R] int64 on the device: slots, tokens computed before, tokens in this step, and the slots that
                receive the sampled ids. Rows of no token are padding.
            num_tokens: T; tokens past those of the rows are padding.
            states: Of the requests.
            block_size: Tokens per KV block.
        """
        slots, starts, lens, next_slots = rows.unbind(0)
        ends, contexts = lens.cumsum(0), starts + lens
        tokens = torch.arange(num_tokens, device=rows.device)
        row = torch.searchsorted(ends, tokens, right=True)
        is_padding = row == rows.shape[1]
        row = row.clamp(max=rows.shape[1] - 1)
        # A token's position is its index in the step, shifted by where its row's tokens end in step and context.
        positions = (tokens + (contexts - ends)[row]).masked_fill(is_padding, 0)
        token_slots = slots[row].masked_fill(is_padding, states.padding_slot)
        blocks = states.block_tables[token_slots, positions // block_size].long()
        return cls(
            input_ids=states.token_ids[token_slots, positions],
            positions=positions,
            layout=BatchLayout(
                query_lens=(num_tokens,),
                context_lens=(num_tokens,),
                query_start_loc=torch.cat((ends.new_zeros(1), ends)).int(),
                context_lens_device=contexts.int(),
                block_tables=states.block_tables[slots],
                slot_mapping=blocks * block_size + positions % block_size,
            ),
            sampling_tokens=(ends - 1).clamp(min=0),
            next_slots=next_slots,
            # The padding slot's first id stays 0, an id that every model has: padding tokens read it.
            next_positions=contexts.clamp(min=1),
        )
