# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Greedy sampling: the most probable id of each row, and where the next step finds it."""

import torch
import triton
import triton.language as tl

from minivllm_kernels.early_launch import early_launch, let_next_start, wait_for_inputs
from minivllm_kernels.tensor_checks import require_greedy_sample

_TILE_IDS = 4096


def greedy_sample(
    logits: torch.Tensor, token_ids: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """Find the largest logit of each of R rows, and write its id to the requests' known ids.

    A row is read by several programs, or one request would leave most of a GPU idle.

    Args:
        logits: `[R, V]`, rows of any stride.
        token_ids: `[S, L]` int64, written at `[slots, positions]`.
        slots: `[R]` int64, a row of `token_ids` each.
        positions: `[R]` int64 or int32.

    Returns:
        `[R]` int64; of several largest logits the first, of NaN any id.

    Raises:
        InvalidTensor: The shapes, dtypes or layouts do not fit each other.
    """
    require_greedy_sample(logits, token_ids, slots, positions)
    num_rows, vocab_size = logits.shape
    num_parts = triton.cdiv(vocab_size, _TILE_IDS)
    part_max = torch.empty((num_rows, num_parts), dtype=torch.float32, device=logits.device)
    part_ids = torch.empty((num_rows, num_parts), dtype=torch.int32, device=logits.device)
    sampled = torch.empty(num_rows, dtype=torch.int64, device=logits.device)
    options = early_launch(logits.device)
    _argmax_part_kernel[(num_rows, num_parts)](
        part_max, part_ids, logits, logits.stride(0), vocab_size, TILE_IDS=_TILE_IDS, **options
    )
    _merge_parts_kernel[(num_rows,)](
        sampled,
        token_ids,
        part_max,
        part_ids,
        slots,
        positions,
        token_ids.stride(0),
        NUM_PARTS=num_parts,
        num_warps=1,
        **options,
    )
    return sampled


@triton.jit
def _argmax_part_kernel(
    part_max_ptr,
    part_ids_ptr,
    logits_ptr,
    stride_logits,
    vocab_size,
    TILE_IDS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One program finds the largest of TILE_IDS logits of one row."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    ids = part * TILE_IDS + tl.arange(0, TILE_IDS)
    let_next_start(EARLY)
    wait_for_inputs(EARLY)
    logits = tl.load(logits_ptr + row * stride_logits + ids, mask=ids < vocab_size, other=float("-inf"))
    largest, index = tl.max(logits.to(tl.float32), axis=0, return_indices=True)
    target = row * tl.num_programs(1) + part
    tl.store(part_max_ptr + target, largest)
    # Of NaN any id comes out: it must be one that exists.
    tl.store(part_ids_ptr + target, tl.minimum(part * TILE_IDS + index, vocab_size - 1))


@triton.jit
def _merge_parts_kernel(
    sampled_ptr,
    token_ids_ptr,
    part_max_ptr,
    part_ids_ptr,
    slots_ptr,
    positions_ptr,
    stride_token_ids,
    NUM_PARTS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One program merges the parts of one row and records the id."""
    row = tl.program_id(0).to(tl.int64)
    parts = tl.arange(0, triton.next_power_of_2(NUM_PARTS))
    let_next_start(EARLY)
    wait_for_inputs(EARLY)
    part_max = tl.load(part_max_ptr + row * NUM_PARTS + parts, mask=parts < NUM_PARTS, other=float("-inf"))
    _, part = tl.max(part_max, axis=0, return_indices=True)
    sampled = tl.load(part_ids_ptr + row * NUM_PARTS + part).to(tl.int64)
    tl.store(sampled_ptr + row, sampled)
    slot = tl.load(slots_ptr + row)
    tl.store(token_ids_ptr + slot * stride_token_ids + tl.load(positions_ptr + row), sampled)
