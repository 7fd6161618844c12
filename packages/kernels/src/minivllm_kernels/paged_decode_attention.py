# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Decode attention over a paged KV cache, split over the context (Flash-Decoding; Dao et al., 2023).

A decode step has one query per request, so requests × KV heads alone leave most of a GPU idle. The first
kernel cuts each context into splits and attends to each apart; the second merges the splits by their sums of
exponentials. The query heads of one KV head share a program: K and V are read once.
"""

import math

import torch
import triton
import triton.language as tl

from minivllm_kernels.attend_context import attend_context, widens_dot
from minivllm_kernels.attention_config import decode_config, head_tile_size
from minivllm_kernels.early_launch import early_launch, let_next_start, wait_for_inputs
from minivllm_kernels.tensor_checks import require_paged_attention, require_shape

# Programs that fill the largest GPUs several times over.
_TARGET_PROGRAMS = 512
# A shorter split is not worth its merge.
_MIN_SPLIT_TOKENS = 128
_MAX_SPLITS = 32


def paged_decode_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Attend from the newest token of each of B requests to its paged context.

    The launch depends on shapes only, never on `context_lens`, so a CUDA graph may capture it.

    Args:
        query: `[B, Hq, D]`, dtype of the cache; may be a view of a fused q/k/v projection.
        key_cache: `[num_blocks, Hkv, block_size, D]`; query head h reads KV head `h // (Hq // Hkv)`.
        value_cache: as `key_cache`, of the same strides.
        block_tables: `[B, M]` int32; entries past `ceil(context_len / block_size)` are never read.
        context_lens: `[B]` int32, tokens in the cache, the newest included; 0 marks padding: zeros.
        scale: factor on the scores, usually `D ** -0.5`.

    Returns:
        `[B, Hq, D]`, contiguous, in the dtype of `query`; the softmax is computed in float32.

    Raises:
        InvalidTensor: The shapes, dtypes or layouts do not fit each other.
    """
    require_paged_attention(query, key_cache, value_cache, block_tables, context_lens)
    batch_size, num_heads, head_dim = query.shape
    require_shape("context_lens", context_lens, (batch_size,))
    _, num_kv_heads, block_size, _ = key_cache.shape
    group_size = num_heads // num_kv_heads
    config = decode_config(head_dim, query.element_size(), group_size)
    num_splits = num_kv_splits(batch_size * num_kv_heads, block_tables.shape[1] * block_size)
    output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    # A single split is the result already; several are kept in float32 until they are merged.
    partial = output
    if num_splits > 1:
        partial = output.new_empty((batch_size, num_heads, num_splits, head_dim), dtype=torch.float32)
    log_sum_exp = output.new_empty((batch_size, num_heads, num_splits), dtype=torch.float32)
    _attend_split_kernel[(batch_size, num_kv_heads, num_splits)](
        partial,
        log_sum_exp,
        query,
        key_cache,
        value_cache,
        block_tables,
        context_lens,
        scale * math.log2(math.e),
        query.stride(),
        key_cache.stride(),
        block_tables.stride(0),
        BLOCK_SIZE=block_size,
        GROUP_SIZE=group_size,
        HEAD_DIM=head_dim,
        TILE_DIM=head_tile_size(head_dim),
        TILE_ROWS=config.tile_rows,
        TILE_KV=config.tile_kv,
        WIDEN_DOT=widens_dot(query),
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        **early_launch(query.device),
    )
    if num_splits > 1:
        _merge_splits_kernel[(batch_size * num_heads,)](
            output,
            partial,
            log_sum_exp,
            NUM_SPLITS=num_splits,
            HEAD_DIM=head_dim,
            num_warps=1,
            **early_launch(query.device),
        )
    return output


def num_kv_splits(num_rows: int, max_context_len: int) -> int:
    """Parts to cut each context into: a power of two, 1 where the rows alone fill the device.

    Args:
        num_rows: requests × KV heads.
        max_context_len: tokens that a block table can hold.
    """
    wanted = min(_TARGET_PROGRAMS // max(num_rows, 1), max_context_len // _MIN_SPLIT_TOKENS, _MAX_SPLITS)
    return 1 << max(wanted, 1).bit_length() - 1


@triton.jit
def _attend_split_kernel(
    partial_ptr,
    log_sum_exp_ptr,
    query_ptr,
    key_cache_ptr,
    value_cache_ptr,
    block_tables_ptr,
    context_lens_ptr,
    scale_log2,
    query_strides,
    cache_strides,
    stride_table_row,
    BLOCK_SIZE: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    TILE_DIM: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_KV: tl.constexpr,
    WIDEN_DOT: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One program attends from the query heads of one KV head to one split of one request's context."""
    request = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    num_splits = tl.num_programs(2)
    let_next_start(EARLY)
    wait_for_inputs(EARLY)
    context_len = tl.load(context_lens_ptr + request)
    split_len = tl.cdiv(tl.cdiv(context_len, num_splits), TILE_KV) * TILE_KV
    begin = split * split_len
    end = tl.minimum(begin + split_len, context_len)

    rows = tl.arange(0, TILE_ROWS)
    dims = tl.arange(0, TILE_DIM)
    heads = kv_head * GROUP_SIZE + rows
    mask = (rows < GROUP_SIZE)[:, None] & (dims < HEAD_DIM)[None, :]
    query_offsets = request * query_strides[0] + heads[:, None] * query_strides[1] + dims[None, :]
    partial, log_sum_exp = attend_context(
        tl.load(query_ptr + query_offsets, mask=mask, other=0.0),
        tl.full((TILE_ROWS,), context_len - 1, tl.int32),
        begin,
        end,
        end,
        key_cache_ptr,
        value_cache_ptr,
        block_tables_ptr + request * stride_table_row,
        kv_head,
        cache_strides,
        scale_log2,
        BLOCK_SIZE,
        HEAD_DIM,
        TILE_KV,
        WIDEN_DOT,
    )
    # An empty split is written too: it merges with weight 0.
    num_heads = tl.num_programs(1) * GROUP_SIZE
    targets = (request * num_heads + heads) * num_splits + split
    partial_offsets = targets[:, None] * HEAD_DIM + dims[None, :]
    tl.store(partial_ptr + partial_offsets, partial.to(partial_ptr.dtype.element_ty), mask=mask)
    tl.store(log_sum_exp_ptr + targets, log_sum_exp, mask=rows < GROUP_SIZE)


@triton.jit
def _merge_splits_kernel(
    output_ptr,
    partial_ptr,
    log_sum_exp_ptr,
    NUM_SPLITS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One program merges the splits of one query head, weighted by their sums of exponentials."""
    head = tl.program_id(0).to(tl.int64)
    splits = tl.arange(0, NUM_SPLITS)
    dims = tl.arange(0, triton.next_power_of_2(HEAD_DIM))
    mask = dims < HEAD_DIM
    let_next_start(EARLY)
    wait_for_inputs(EARLY)
    log_sum_exp = tl.load(log_sum_exp_ptr + head * NUM_SPLITS + splits)
    largest = tl.max(log_sum_exp, axis=0)
    # -inf in all splits is a context of length 0.
    weights = tl.exp2(log_sum_exp - tl.where(largest == float("-inf"), 0.0, largest))
    total = tl.sum(weights, axis=0)
    offsets = (head * NUM_SPLITS + splits)[:, None] * HEAD_DIM + dims[None, :]
    partial = tl.load(partial_ptr + offsets, mask=mask[None, :], other=0.0)
    output = tl.sum(weights[:, None] * partial, axis=0) / tl.where(total > 0, total, 1.0)
    tl.store(output_ptr + head * HEAD_DIM + dims, output.to(output_ptr.dtype.element_ty), mask=mask)
