# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""The inputs of a decode step, gathered from per-request tables in one launch."""

import torch
import triton
import triton.language as tl

from minivllm_kernels.decode_step import DecodeStep
from minivllm_kernels.early_launch import early_launch, let_next_start, wait_for_inputs
from minivllm_kernels.tensor_checks import require_request_tables

_TILE_BLOCKS = 128
_TILE_ROWS = 256


def decode_inputs(
    slots: torch.Tensor,
    positions: torch.Tensor,
    token_ids: torch.Tensor,
    block_tables: torch.Tensor,
    block_size: int,
) -> DecodeStep:
    """Look up what each of R rows computes next: one token of one request.

    Args:
        slots: `[R]` int64, the request of each row as a row of the tables.
        positions: `[R]` int64, which of its tokens; all before it are in the cache.
        token_ids: `[S, L]` int64, known ids of the requests.
        block_tables: `[S, M]` int32.
        block_size: tokens per KV block.

    Returns:
        The rows' ids, context lengths, tables and slots, and their order by length.

    Raises:
        InvalidTensor: The shapes, dtypes or layouts do not fit each other.
    """
    require_request_tables(slots, positions, token_ids, block_tables)
    num_rows, num_blocks = slots.shape[0], block_tables.shape[1]
    input_ids, slot_mapping = torch.empty((2, num_rows), dtype=torch.int64, device=slots.device)
    context_lens = torch.empty(num_rows, dtype=torch.int32, device=slots.device)
    tables = torch.empty((num_rows, num_blocks), dtype=torch.int32, device=slots.device)
    longest_first = torch.empty_like(context_lens)
    _gather_row_kernel[(num_rows,)](
        input_ids,
        context_lens,
        tables,
        slot_mapping,
        longest_first,
        slots,
        positions,
        token_ids,
        block_tables,
        token_ids.stride(0),
        num_blocks,
        BLOCK_SIZE=block_size,
        TILE_BLOCKS=_TILE_BLOCKS,
        TILE_ROWS=_TILE_ROWS,
        num_warps=1,
        **early_launch(slots.device),
    )
    return DecodeStep(input_ids, context_lens, tables, slot_mapping, longest_first)


@triton.jit
def _gather_row_kernel(
    input_ids_ptr,
    context_lens_ptr,
    tables_ptr,
    slot_mapping_ptr,
    longest_first_ptr,
    slots_ptr,
    positions_ptr,
    token_ids_ptr,
    block_tables_ptr,
    stride_token_ids,
    num_blocks,
    BLOCK_SIZE: tl.constexpr,
    TILE_BLOCKS: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One program serves one row."""
    row = tl.program_id(0).to(tl.int64)
    let_next_start(EARLY)
    wait_for_inputs(EARLY)
    slot = tl.load(slots_ptr + row)
    position = tl.load(positions_ptr + row)
    tl.store(input_ids_ptr + row, tl.load(token_ids_ptr + slot * stride_token_ids + position))
    tl.store(context_lens_ptr + row, (position + 1).to(tl.int32))
    table_ptr = block_tables_ptr + slot * num_blocks
    block_id = tl.load(table_ptr + position // BLOCK_SIZE).to(tl.int64)
    tl.store(slot_mapping_ptr + row, block_id * BLOCK_SIZE + position % BLOCK_SIZE)
    num_used = position // BLOCK_SIZE + 1
    for first in range(0, num_used, TILE_BLOCKS):
        blocks = first + tl.arange(0, TILE_BLOCKS)
        mask = blocks < num_used
        tl.store(tables_ptr + row * num_blocks + blocks, tl.load(table_ptr + blocks, mask=mask), mask=mask)
    tl.store(longest_first_ptr + _rank(row, position, positions_ptr, TILE_ROWS), row.to(tl.int32))


@triton.jit
def _rank(row, position, positions_ptr, TILE_ROWS: tl.constexpr):
    """Place of this row among all by falling context length; of equal ones the first row comes first."""
    before = tl.zeros((), tl.int32)
    for first in range(0, tl.num_programs(0), TILE_ROWS):
        rows = first + tl.arange(0, TILE_ROWS)
        others = tl.load(positions_ptr + rows, mask=rows < tl.num_programs(0), other=-1)
        before += tl.sum(((others > position) | ((others == position) & (rows < row))).to(tl.int32))
    return before
