# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""The loop inside both paged attention kernels: a tile of query rows attends to a range of one context.

The softmax is the online one (Milakov and Gimelshein, 2018): each query row carries its largest score so
far, the sum of 2^(score - largest) and the sum of the values weighted alike. Scores include a factor log2(e),
since exp2 is the instruction that GPUs have. Tiles of the context that every query row sees whole come first: they
need no mask.
"""

import torch
import triton
import triton.language as tl

from minivllm_kernels.attention_config import AttentionConfig, head_tile_size
from minivllm_kernels.early_launch import early_launch


def widens_dot(tensor: torch.Tensor) -> bool:
    """Whether the operands of `tl.dot` must become float32 first.

    Triton's interpreter, which is what runs on CPU tensors, multiplies the bit patterns of bfloat16.
    """
    return tensor.is_cpu and tensor.dtype is torch.bfloat16


def launch_constants(
    heads: torch.Tensor, key_cache: torch.Tensor, group_size: int, config: AttentionConfig
) -> dict[str, int | bool | None]:
    """What the launches of both kernels have in common, by the names of their parameters."""
    _, _, block_size, head_dim = key_cache.shape
    return {
        "BLOCK_SIZE": block_size,
        "GROUP_SIZE": group_size,
        "HEAD_DIM": head_dim,
        "TILE_DIM": head_tile_size(head_dim),
        "TILE_KV": config.tile_kv,
        "WIDEN_DOT": widens_dot(heads),
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
        "maxnreg": config.max_registers,
        **early_launch(heads.device),
    }


@triton.jit
def cache_at(
    request, kv_head, key_cache_ptr, value_cache_ptr, block_tables_ptr, cache_strides, stride_table_row
):
    """The `cache` of `attend_context` for one request and KV head."""
    return (
        key_cache_ptr + kv_head * cache_strides[1],
        value_cache_ptr + kv_head * cache_strides[1],
        block_tables_ptr + request.to(tl.int64) * stride_table_row,
        cache_strides,
    )


@triton.jit
def attend_context(
    query,
    query_positions,
    seen,
    cache,
    scale_log2,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    TILE_KV: tl.constexpr,
    MASKED_TILE_KV: tl.constexpr,
    WIDEN_DOT: tl.constexpr,
):
    """Attend from `query` `[R, D padded]` to a range of positions, each row up to its own position.

    `seen` is (begin, all_see, end): every row sees the positions from `begin` up to `all_see`, and at least the first.
    `cache` is (key cache, value cache, both at the KV head to read; block table; strides of the caches). What not all
    rows see is read in tiles of MASKED_TILE_KV: where there are many rows, small ones waste less arithmetic. Returns
    the output `[R, D padded]` and the log2 of the sum of exponentials `[R]`, both float32: zeros and -inf where the
    range is empty.
    """
    begin, all_see, end = seen
    key_cache_ptr, value_cache_ptr, block_table_ptr, strides = cache
    accumulator = tl.zeros(query.shape, tl.float32)
    row_max = tl.full((query.shape[0],), float("-inf"), tl.float32)
    row_sum = tl.zeros((query.shape[0],), tl.float32)
    whole_end = begin + tl.maximum(all_see - begin, 0) // TILE_KV * TILE_KV
    for first in range(begin, whole_end, TILE_KV):
        positions = first + tl.arange(0, TILE_KV)
        slots = locate(positions, True, block_table_ptr, strides, BLOCK_SIZE)
        keys = _load_tile(key_cache_ptr, slots, query.shape[1], HEAD_DIM)
        values = _load_tile(value_cache_ptr, slots, query.shape[1], HEAD_DIM)
        scores = _dot(query, tl.trans(keys), WIDEN_DOT)
        accumulator, row_max, row_sum = _add_tile(
            accumulator, row_max, row_sum, scores, scale_log2, values, WIDEN_DOT
        )
    dims = tl.arange(0, query.shape[1])
    for first in range(whole_end, end, MASKED_TILE_KV):
        positions = first + tl.arange(0, MASKED_TILE_KV)
        inside = positions < end
        slots = locate(positions, inside, block_table_ptr, strides, BLOCK_SIZE)
        # Unwritten slots may hold NaN. Zeros there are needed in V, too: a weight of 0 times NaN is NaN.
        mask = inside[:, None] & (dims < HEAD_DIM)[None, :]
        offsets = slots[:, None] + dims[None, :]
        keys = tl.load(key_cache_ptr + offsets, mask=mask, other=0.0)
        values = tl.load(value_cache_ptr + offsets, mask=mask, other=0.0)
        visible = (positions[None, :] <= query_positions[:, None]) & inside[None, :]
        scores = tl.where(visible, _dot(query, tl.trans(keys), WIDEN_DOT), float("-inf"))
        accumulator, row_max, row_sum = _add_tile(
            accumulator, row_max, row_sum, scores, scale_log2, values, WIDEN_DOT
        )
    divisor = tl.where(row_sum > 0, row_sum, 1.0)
    return accumulator / divisor[:, None], row_max + tl.log2(divisor)


@triton.jit
def locate(positions, inside, block_table_ptr, strides, BLOCK_SIZE: tl.constexpr):
    """Offsets of the positions' slots in one head of the cache, in 64 bits: they pass 2^31 in pools of a few GB."""
    block_ids = tl.load(block_table_ptr + positions // BLOCK_SIZE, mask=inside, other=0)
    return block_ids.to(tl.int64) * strides[0] + (positions % BLOCK_SIZE) * strides[2]


@triton.jit
def _load_tile(cache_ptr, slots, TILE_DIM: tl.constexpr, HEAD_DIM: tl.constexpr):
    """Keys or values of whole slots, `[TILE_KV, TILE_DIM]`, zeros past the head."""
    dims = tl.arange(0, TILE_DIM)
    offsets = slots[:, None] + dims[None, :]
    if TILE_DIM == HEAD_DIM:
        tile = tl.load(cache_ptr + offsets)
    else:
        tile = tl.load(cache_ptr + offsets, mask=(dims < HEAD_DIM)[None, :], other=0.0)
    return tile


@triton.jit
def _add_tile(accumulator, row_max, row_sum, scores, scale_log2, values, WIDEN_DOT: tl.constexpr):
    """One step of the online softmax; each row's first tile has a finite score."""
    new_max = tl.maximum(row_max, tl.max(scores, axis=1) * scale_log2)
    # Multiplied here, where it takes no instruction of its own: scaling and subtracting are one.
    weights = tl.exp2(scores * scale_log2 - new_max[:, None])
    decay = tl.exp2(row_max - new_max)
    row_sum = row_sum * decay + tl.sum(weights, axis=1)
    accumulator = accumulator * decay[:, None] + _dot(weights.to(values.dtype), values, WIDEN_DOT)
    return accumulator, new_max, row_sum


@triton.jit
def _dot(a, b, WIDEN: tl.constexpr):
    """Matrix product that accumulates in float32, without TF32."""
    if WIDEN:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, input_precision="ieee")
