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

from minivllm_kernels.attend_context import attend_context, cache_at, launch_constants, locate
from minivllm_kernels.attention_config import decode_config
from minivllm_kernels.decode_step import PagedContexts
from minivllm_kernels.early_launch import early_launch, let_next_start, wait_for_inputs
from minivllm_kernels.head_norms import HeadNorms, query_and_key_norm
from minivllm_kernels.rms_norm import scale_row
from minivllm_kernels.tensor_checks import (
    require_cos_sin,
    require_head_norms,
    require_order,
    require_paged_attention,
    require_scale,
    require_shape,
)

# Programs that fill the largest GPUs twice over; and those that even out contexts of different lengths, too.
_FILLING_PROGRAMS = 256
_EVEN_PROGRAMS = 1024
# More are not worth it for the sake of evenness.
_EVEN_SPLITS = 8
# A shorter split is not worth its merge.
_MIN_SPLIT_TOKENS = 256
_MAX_SPLITS = 32
MASKED_TILES = tl.constexpr(8)
"""Of a stretch of at most so many tiles all are masked: a last one apart would be loaded only when the rest is done."""


def paged_decode_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
    order: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend from the newest token of each of B requests to its paged context.

    The launch depends on shapes only, never on `context_lens`, so a CUDA graph may capture it.

    Args:
        query: `[B, Hq, D]`, dtype of the cache; may be a view of a fused q/k/v projection.
        key_cache: `[num_blocks, Hkv, block_size, D]`; query head h reads KV head `h // (Hq // Hkv)`.
        value_cache: as `key_cache`, of the same strides.
        block_tables: `[B, M]` int32; entries past `ceil(context_len / block_size)` are never read.
        context_lens: `[B]` int32, tokens in the cache, the newest included; 0 marks padding: zeros.
        scale: factor on the scores, above 0; usually `D ** -0.5`.
        order: `[B]` int32, as `PagedContexts.order`.

    Returns:
        `[B, Hq, D]`, contiguous, in the dtype of `query`; the softmax is computed in float32.

    Raises:
        InvalidTensor: The shapes, dtypes or layouts do not fit each other.
    """
    require_paged_attention(query, key_cache, value_cache, block_tables, context_lens)
    require_scale(scale)
    require_shape("context_lens", context_lens, (query.shape[0],))
    require_order(order, query.shape[0])
    caches = (key_cache, value_cache)
    contexts = PagedContexts(block_tables, context_lens, order)
    return _attend(query, query.shape[1], None, None, caches, contexts, scale)


def rotate_cache_and_attend(
    heads: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    contexts: PagedContexts,
    scale: float,
    norms: HeadNorms | None = None,
) -> torch.Tensor:
    """All between the q/k/v projection and the output projection of a decode step, in one pass.

    The newest token of each of B requests is at position `context_len - 1`. Its query and key are normalized (as by
    `rms_norm`) and rotated to it (as by `rotary_embedding`), its key and value are written to the cache, and its query
    attends to the context.

    Args:
        heads: `[B, Hq + 2 * Hkv, D]`, query, key and value heads side by side; not changed.
        cos_sin_cache: `[P, D]` float32, contiguous: row p holds the cosines of D/2 angles, then their sines.
        key_cache: `[num_blocks, Hkv, block_size, D]`, dtype of `heads`; written at the newest position.
        value_cache: as `key_cache`, of the same strides.
        contexts: of the B requests; padding gives zeros.
        scale: factor on the scores, above 0; usually `D ** -0.5`.
        norms: of the query and key heads; None leaves them as they are.

    Returns:
        `[B, Hq, D]`, contiguous, in the dtype of `heads`; the softmax is computed in float32.

    Raises:
        InvalidTensor: The shapes, dtypes or layouts do not fit each other.
    """
    num_heads = heads.shape[1] - 2 * key_cache.shape[1]
    tables_and_lens = (contexts.block_tables, contexts.context_lens)
    require_paged_attention(heads[:, :num_heads], key_cache, value_cache, *tables_and_lens)
    require_scale(scale)
    require_shape("context_lens", contexts.context_lens, (heads.shape[0],))
    require_order(contexts.order, heads.shape[0])
    require_cos_sin(cos_sin_cache, heads.shape[2])
    require_head_norms(norms, heads.shape[2])
    caches = (key_cache, value_cache)
    return _attend(heads, num_heads, cos_sin_cache, norms, caches, contexts, scale)


def _attend(
    heads: torch.Tensor,
    num_heads: int,
    cos_sin_cache: torch.Tensor | None,
    norms: HeadNorms | None,
    caches: tuple[torch.Tensor, torch.Tensor],
    contexts: PagedContexts,
    scale: float,
) -> torch.Tensor:
    """Launch both kernels on checked arguments; `cos_sin_cache` is None where nothing is to be rotated or written."""
    batch_size, _, head_dim = heads.shape
    _, num_kv_heads, block_size, _ = caches[0].shape
    group_size = num_heads // num_kv_heads
    config = decode_config(head_dim, heads.element_size(), group_size)
    num_splits = num_kv_splits(batch_size * num_kv_heads, contexts.block_tables.shape[1] * block_size)
    output = torch.empty((batch_size, num_heads, head_dim), dtype=heads.dtype, device=heads.device)
    # A single split is the result already; several are kept in float32 until they are merged.
    partial = output
    if num_splits > 1:
        partial = output.new_empty((batch_size, num_heads, num_splits, head_dim), dtype=torch.float32)
    log_sum_exp = output.new_empty((batch_size, num_heads, num_splits), dtype=torch.float32)
    _attend_split_kernel[(batch_size * num_kv_heads, num_splits)](
        partial,
        log_sum_exp,
        heads,
        cos_sin_cache,
        *query_and_key_norm(norms),
        *caches,
        tuple(contexts),
        num_kv_heads,
        scale * math.log2(math.e),
        heads.stride(),
        caches[0].stride(),
        contexts.block_tables.stride(0),
        TILE_ROWS=config.tile_rows,
        **launch_constants(heads, caches[0], group_size, config),
    )
    if num_splits > 1:
        _merge_splits_kernel[(batch_size * num_heads,)](
            output,
            partial,
            log_sum_exp,
            NUM_SPLITS=num_splits,
            HEAD_DIM=head_dim,
            num_warps=1,
            **early_launch(heads.device),
        )
    return output


def num_kv_splits(num_rows: int, max_context_len: int) -> int:
    """Parts to cut each context into: a power of two, 1 where the rows alone fill the device evenly.

    Args:
        num_rows: requests × KV heads.
        max_context_len: tokens that a block table can hold.
    """
    num_rows = max(num_rows, 1)
    wanted = max(_FILLING_PROGRAMS // num_rows, min(_EVEN_PROGRAMS // num_rows, _EVEN_SPLITS))
    wanted = min(wanted, max_context_len // _MIN_SPLIT_TOKENS, _MAX_SPLITS)
    return 1 << max(wanted, 1).bit_length() - 1


@triton.jit
def _attend_split_kernel(
    partial_ptr,
    log_sum_exp_ptr,
    heads_ptr,
    cos_sin_ptr,
    query_norm,
    key_norm,
    key_cache_ptr,
    value_cache_ptr,
    contexts,
    num_kv_heads,
    scale_log2,
    heads_strides,
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
    let_next_start(EARLY)
    wait_for_inputs(EARLY)
    block_tables_ptr, context_lens_ptr, order_ptr = contexts
    request, kv_head = _pick(order_ptr, num_kv_heads)
    split, num_splits = tl.program_id(1), tl.num_programs(1)
    context_len = tl.load(context_lens_ptr + request)
    split_len = tl.cdiv(tl.cdiv(context_len, num_splits), TILE_KV) * TILE_KV
    begin = split * split_len
    end = tl.minimum(begin + split_len, context_len)
    rows, dims = tl.arange(0, TILE_ROWS), tl.arange(0, TILE_DIM)
    mask = (rows < GROUP_SIZE)[:, None] & (dims < HEAD_DIM)[None, :]
    heads_ptr += request * heads_strides[0]
    cache = cache_at(
        request, kv_head, key_cache_ptr, value_cache_ptr, block_tables_ptr, cache_strides, stride_table_row
    )
    query_ptr = heads_ptr + (kv_head * GROUP_SIZE + rows)[:, None] * heads_strides[1]
    if cos_sin_ptr is None:
        query = tl.load(query_ptr + dims[None, :], mask=mask, other=0.0)
    else:
        angle_ptr = cos_sin_ptr + tl.maximum(context_len - 1, 0).to(tl.int64) * HEAD_DIM
        query = _load_rotated(query_ptr, dims[None, :], query_norm, angle_ptr, mask, HEAD_DIM)
        if (begin < context_len) & (end == context_len):
            key_ptr = heads_ptr + (num_kv_heads * GROUP_SIZE + kv_head) * heads_strides[1]
            value_ptr = key_ptr + num_kv_heads * heads_strides[1]
            _write_newest(key_ptr, value_ptr, key_norm, angle_ptr, context_len, cache, BLOCK_SIZE, HEAD_DIM)
    positions = tl.full((TILE_ROWS,), context_len - 1, tl.int32)
    seen = (begin, tl.where(end - begin > MASKED_TILES * TILE_KV, end, begin), end)
    partial, log_sum_exp = attend_context(
        query, positions, seen, cache, scale_log2, BLOCK_SIZE, HEAD_DIM, TILE_KV, TILE_KV, WIDEN_DOT
    )
    # An empty split is written too: it merges with weight 0.
    targets = ((request * num_kv_heads + kv_head) * GROUP_SIZE + rows) * num_splits + split
    partial_offsets = targets[:, None] * HEAD_DIM + dims[None, :]
    tl.store(partial_ptr + partial_offsets, partial.to(partial_ptr.dtype.element_ty), mask=mask)
    tl.store(log_sum_exp_ptr + targets, log_sum_exp, mask=rows < GROUP_SIZE)


@triton.jit
def _pick(order_ptr, num_kv_heads):
    """Request and KV head of a program: all heads of one request, then those of the next in order, for each split."""
    program = tl.program_id(0)
    request = program // num_kv_heads
    if order_ptr is not None:
        request = tl.load(order_ptr + request)
    return request.to(tl.int64), program % num_kv_heads


@triton.jit
def _write_newest(
    key_ptr,
    value_ptr,
    key_norm,
    angle_ptr,
    context_len,
    cache,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
):
    """Write the newest token's rotated key and its value to their slots, for all threads of the program to read."""
    key_cache_ptr, value_cache_ptr, block_table_ptr, strides = cache
    slot = locate(context_len - 1, True, block_table_ptr, strides, BLOCK_SIZE)
    dims = tl.arange(0, triton.next_power_of_2(HEAD_DIM))
    mask = dims < HEAD_DIM
    value = tl.load(value_ptr + dims, mask=mask)
    key = _load_rotated(key_ptr, dims, key_norm, angle_ptr, mask, HEAD_DIM)
    tl.store(key_cache_ptr + slot + dims, key, mask=mask)
    tl.store(value_cache_ptr + slot + dims, value, mask=mask)
    tl.debug_barrier()


@triton.jit
def _load_rotated(head_ptr, dims, norm, angle_ptr, mask, HEAD_DIM: tl.constexpr):
    """Heads, normalized if there is a norm, rotated by the angles of one position.

    That is, (x1, x2) becomes (x1 cos - x2 sin, x2 cos + x1 sin).
    """
    half: tl.constexpr = HEAD_DIM // 2
    is_first = dims < half
    angles = angle_ptr + tl.where(is_first, dims, dims - half)
    inside = dims < HEAD_DIM
    cos = tl.load(angles, mask=inside, other=0.0)
    sin = tl.load(angles + half, mask=inside, other=0.0)
    x = tl.load(head_ptr + dims, mask=mask, other=0.0)
    partners = tl.where(is_first, dims + half, dims - half)
    partner = tl.load(head_ptr + partners, mask=mask, other=0.0)
    if norm is not None:
        weight_ptr, eps = norm
        wide = x.to(tl.float32)
        mean_square = tl.sum(wide * wide, axis=len(x.shape) - 1, keep_dims=True) / HEAD_DIM
        inverse_rms = tl.rsqrt(mean_square + eps)
        x = scale_row(x, inverse_rms, tl.load(weight_ptr + dims, mask=inside, other=0.0))
        partner = scale_row(partner, inverse_rms, tl.load(weight_ptr + partners, mask=inside, other=0.0))
    signed_sin = tl.where(is_first, -sin, sin)
    return (x.to(tl.float32) * cos + partner.to(tl.float32) * signed_sin).to(x.dtype)


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
    offsets = (head * NUM_SPLITS + splits)[:, None] * HEAD_DIM + dims[None, :]
    partial = tl.load(partial_ptr + offsets, mask=mask[None, :], other=0.0)
    largest = tl.max(log_sum_exp, axis=0)
    # -inf in all splits is a context of length 0.
    weights = tl.exp2(log_sum_exp - tl.where(largest == float("-inf"), 0.0, largest))
    total = tl.sum(weights, axis=0)
    output = tl.sum(weights[:, None] * partial, axis=0) / tl.where(total > 0, total, 1.0)
    tl.store(output_ptr + head * HEAD_DIM + dims, output.to(output_ptr.dtype.element_ty), mask=mask)
