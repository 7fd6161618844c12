# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""The loop inside both paged attention kernels: a tile of query rows attends to a range of one context.

The softmax is the online one (Milakov and Gimelshein, 2018): each query row carries its largest score so
far, the sum of 2^(score - largest) and the sum of the values weighted alike. Scores include a factor log2(e),
since exp2 is the instruction that GPUs have.
"""

import torch
import triton
import triton.language as tl

# The smallest side of tl.dot: fewer query rows, or shorter heads, are padded to it.
MIN_DOT_SIZE = 16


def head_tile_size(head_dim: int) -> int:
    """Elements of a head in a tile: a power of two that tl.dot takes; those past head_dim are masked."""
    return max(int(triton.next_power_of_2(head_dim)), MIN_DOT_SIZE)


def kv_tile_size(head_dim: int, element_bytes: int) -> int:
    """Positions in a tile of K or V: as many as 16 KiB hold, from 16 to 64."""
    row_bytes = head_tile_size(head_dim) * element_bytes
    return min(max(16 * 1024 // row_bytes, 16), 64)


def widens_dot(tensor: torch.Tensor) -> bool:
    """Whether the operands of `tl.dot` must become float32 first.

    Triton's interpreter, which is what runs on CPU tensors, multiplies the bit patterns of bfloat16.
    """
    return tensor.is_cpu and tensor.dtype is torch.bfloat16


@triton.jit
def attend_context(
    query,
    query_positions,
    begin,
    end,
    key_cache_ptr,
    value_cache_ptr,
    block_table_ptr,
    kv_head,
    cache_strides,
    scale_log2,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    TILE_KV: tl.constexpr,
    WIDEN_DOT: tl.constexpr,
):
    """Attend from `query` `[R, D padded]` to positions `begin` to `end`, each row up to its own position.

    Position `begin` must be visible to every row. Returns the output `[R, D padded]` and the log2 of the sum
    of exponentials `[R]`, both float32: zeros and -inf where the range is empty.
    """
    accumulator = tl.zeros(query.shape, tl.float32)
    row_max = tl.full((query.shape[0],), float("-inf"), tl.float32)
    row_sum = tl.zeros((query.shape[0],), tl.float32)
    dims = tl.arange(0, query.shape[1])
    for first in range(begin, end, TILE_KV):
        positions = first + tl.arange(0, TILE_KV)
        inside = positions < end
        block_ids = tl.load(block_table_ptr + positions // BLOCK_SIZE, mask=inside, other=0)
        # 64 bits: block id × stride passes 2^31 in pools of a few GB.
        slots = block_ids.to(tl.int64) * cache_strides[0] + (positions % BLOCK_SIZE) * cache_strides[2]
        offsets = slots[:, None] + kv_head * cache_strides[1] + dims[None, :]
        # Unwritten slots may hold NaN. Zeros there are needed in V, too: a weight of 0 times NaN is NaN.
        mask = inside[:, None] & (dims < HEAD_DIM)[None, :]
        keys = tl.load(key_cache_ptr + offsets, mask=mask, other=0.0)
        values = tl.load(value_cache_ptr + offsets, mask=mask, other=0.0)

        scores = _dot(query, tl.trans(keys), WIDEN_DOT) * scale_log2
        visible = (positions[None, :] <= query_positions[:, None]) & inside[None, :]
        scores = tl.where(visible, scores, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_max[:, None])
        decay = tl.exp2(row_max - new_max)
        row_sum = row_sum * decay + tl.sum(weights, axis=1)
        accumulator = accumulator * decay[:, None] + _dot(weights.to(values.dtype), values, WIDEN_DOT)
        row_max = new_max
    divisor = tl.where(row_sum > 0, row_sum, 1.0)
    return accumulator / divisor[:, None], row_max + tl.log2(divisor)


@triton.jit
def _dot(a, b, WIDEN: tl.constexpr):
    """Matrix product that accumulates in float32, without TF32."""
    if WIDEN:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, input_precision="ieee")
