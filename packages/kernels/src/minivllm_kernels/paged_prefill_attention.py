# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Causal attention of prompt chunks over a paged KV cache, one launch for chunks of any mix of lengths.

FlashAttention-2 (Dao, 2023) over tiles of queries, with the query heads of one KV head packed into the rows
of a tile. The tiles of all requests form one list whose length follows from shapes alone: request b starts at
tile `query_start_loc[b] // TILE_Q + b`, which leaves each request room for its last, partly filled tile. Whose tile
is whose is found out once for all layers of a step; tiles that nobody needs end at once.
"""

import math

import torch
import triton
import triton.language as tl

from minivllm_kernels.attend_context import attend_context, cache_at, launch_constants
from minivllm_kernels.attention_config import PrefillTiles, prefill_config
from minivllm_kernels.early_launch import early_launch, let_next_start, wait_for_inputs
from minivllm_kernels.tensor_checks import (
    require_paged_attention,
    require_query_start_loc,
    require_scale,
    require_shape,
)

_LOCATED_TILES = 64


def paged_prefill_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    query_start_loc: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
    tiles: PrefillTiles | None = None,
) -> torch.Tensor:
    """Attend from the chunks of B requests, packed one after another, to their paged contexts.

    Their keys and values are in the cache already. Query t of request b sees the positions up to its own,
    `context_lens[b] - query_len[b] + t`. A chunk may be a single token, as in decode, or empty.

    Args:
        query: `[T, Hq, D]`, dtype of the cache; may be a view of a fused q/k/v projection.
        key_cache: `[num_blocks, Hkv, block_size, D]`; query head h reads KV head `h // (Hq // Hkv)`.
        value_cache: as `key_cache`, of the same strides.
        block_tables: `[B, M]` int32; entries past `ceil(context_len / block_size)` are never read.
        query_start_loc: `[B + 1]` int32, from 0 up to T: the first row of each request, then the end.
        context_lens: `[B]` int32, tokens in the cache, the chunk included; 0 marks padding: zeros.
        scale: factor on the scores, above 0; usually `D ** -0.5`.
        tiles: from `locate_tiles` for the same batch, which the layers of a step share; None locates them here. Their
            shape never changes what a token sees.

    Returns:
        `[T, Hq, D]`, contiguous, in the dtype of `query`; the softmax is computed in float32.

    Raises:
        InvalidTensor: The shapes, dtypes or layouts do not fit each other.
    """
    require_paged_attention(query, key_cache, value_cache, block_tables, context_lens)
    require_scale(scale)
    num_requests = block_tables.shape[0]
    require_query_start_loc(query_start_loc, num_requests)
    num_tokens, num_heads, _ = query.shape
    num_kv_heads = key_cache.shape[1]
    if tiles is None:
        tiles = locate_tiles(query_start_loc, key_cache, num_heads, num_tokens, num_tokens)
    require_shape("tiles.requests", tiles.requests, (num_tokens // tiles.tokens + num_requests,))
    output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    _attend_chunk_kernel[(len(tiles.requests), num_kv_heads)](
        output,
        query,
        key_cache,
        value_cache,
        block_tables,
        query_start_loc,
        context_lens,
        tiles.requests,
        scale * math.log2(math.e),
        query.stride(),
        key_cache.stride(),
        block_tables.stride(0),
        TILE_Q=tiles.tokens,
        **launch_constants(query, key_cache, num_heads // num_kv_heads, tiles.config),
    )
    return output


def locate_tiles(
    query_start_loc: torch.Tensor,
    key_cache: torch.Tensor,
    num_heads: int,
    num_tokens: int,
    max_query_len: int,
) -> PrefillTiles:
    """Find the request of each tile of queries; for `paged_prefill_attention`.

    Args:
        query_start_loc: `[B + 1]` int32, from 0 up to T: the first row of each request, then the end.
        key_cache: `[num_blocks, Hkv, block_size, D]`, of any layer.
        num_heads: Hq.
        num_tokens: T.
        max_query_len: at least the longest chunk of the batch; picks the size of the tiles.

    Raises:
        InvalidTensor: `query_start_loc` has another dtype or shape.
    """
    require_query_start_loc(query_start_loc, len(query_start_loc) - 1)
    num_requests = len(query_start_loc) - 1
    _, num_kv_heads, _, head_dim = key_cache.shape
    group_size = num_heads // num_kv_heads
    config = prefill_config(head_dim, key_cache.element_size(), group_size, max_query_len)
    tile_q = max(config.tile_rows // triton.next_power_of_2(group_size), 1)
    num_tiles = num_tokens // tile_q + num_requests
    requests = torch.empty(num_tiles, dtype=torch.int32, device=query_start_loc.device)
    _locate_tiles_kernel[(triton.cdiv(num_tiles, _LOCATED_TILES),)](
        requests,
        query_start_loc,
        num_tiles,
        num_requests,
        TILE_Q=tile_q,
        LOCATED_TILES=_LOCATED_TILES,
        **early_launch(requests.device),
    )
    return PrefillTiles(requests, tile_q, config)


@triton.jit
def _attend_chunk_kernel(
    output_ptr,
    query_ptr,
    key_cache_ptr,
    value_cache_ptr,
    block_tables_ptr,
    query_start_loc_ptr,
    context_lens_ptr,
    tiles_ptr,
    scale_log2,
    query_strides,
    cache_strides,
    stride_table_row,
    BLOCK_SIZE: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    TILE_DIM: tl.constexpr,
    TILE_Q: tl.constexpr,
    TILE_KV: tl.constexpr,
    WIDEN_DOT: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One program attends from TILE_Q tokens of one request, with all query heads of one KV head."""
    # The last tiles of a prompt see most and take longest: they go first.
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    let_next_start(EARLY)
    wait_for_inputs(EARLY)
    kv_head = tl.program_id(1)
    request = tl.load(tiles_ptr + tile)
    if request < 0:
        return

    query_start = tl.load(query_start_loc_ptr + request)
    query_len = tl.load(query_start_loc_ptr + request + 1) - query_start
    first_token = (tile - query_start // TILE_Q - request) * TILE_Q
    rows_per_token: tl.constexpr = triton.next_power_of_2(GROUP_SIZE)
    rows = tl.arange(0, TILE_Q * rows_per_token)
    dims = tl.arange(0, TILE_DIM)
    tokens = first_token + rows // rows_per_token
    heads = kv_head * GROUP_SIZE + rows % rows_per_token
    row_mask = (tokens < query_len) & (rows % rows_per_token < GROUP_SIZE)
    mask = row_mask[:, None] & (dims < HEAD_DIM)[None, :]
    # 64 bits: token × stride passes 2^31 in large batches.
    query_rows = (query_start + tokens).to(tl.int64)
    query_offsets = (query_rows * query_strides[0] + heads * query_strides[1])[:, None] + dims[None, :]
    context_len = tl.load(context_lens_ptr + request)
    first_position = context_len - query_len
    cache = cache_at(
        request, kv_head, key_cache_ptr, value_cache_ptr, block_tables_ptr, cache_strides, stride_table_row
    )
    query = tl.load(query_ptr + query_offsets, mask=mask, other=0.0)
    first = first_position + first_token
    seen = (0, first + 1, tl.minimum(context_len, first + TILE_Q))
    positions = first_position + tokens
    output, _ = attend_context(
        query, positions, seen, cache, scale_log2, BLOCK_SIZE, HEAD_DIM, TILE_KV, min(TILE_KV, 32), WIDEN_DOT
    )
    targets = query_rows * tl.num_programs(1) * GROUP_SIZE + heads
    output_offsets = targets[:, None] * HEAD_DIM + dims[None, :]
    tl.store(output_ptr + output_offsets, output.to(output_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["num_tiles", "num_requests"])
def _locate_tiles_kernel(
    tiles_ptr,
    query_start_loc_ptr,
    num_tiles,
    num_requests,
    TILE_Q: tl.constexpr,
    LOCATED_TILES: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One program finds the requests that own LOCATED_TILES tiles: the last ones whose first tile is not after them."""
    tiles = tl.program_id(0) * LOCATED_TILES + tl.arange(0, LOCATED_TILES)
    let_next_start(EARLY)
    wait_for_inputs(EARLY)
    num_begun = tl.zeros((LOCATED_TILES,), tl.int32)
    for first in range(0, num_requests, 64):
        requests = first + tl.arange(0, 64)
        starts = tl.load(query_start_loc_ptr + requests, mask=requests < num_requests, other=0)
        first_tiles = tl.where(requests < num_requests, starts // TILE_Q + requests, num_tiles)
        num_begun += tl.sum((first_tiles[None, :] <= tiles[:, None]).to(tl.int32), axis=1)
    request = num_begun - 1
    is_tile = tiles < num_tiles
    start = tl.load(query_start_loc_ptr + request, mask=is_tile, other=0)
    end = tl.load(query_start_loc_ptr + request + 1, mask=is_tile, other=0)
    first_token = (tiles - start // TILE_Q - request) * TILE_Q
    tl.store(tiles_ptr + tiles, tl.where(first_token < end - start, request, -1), mask=is_tile)
