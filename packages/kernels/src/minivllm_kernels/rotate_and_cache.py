# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""What lies between the q/k/v projection and attention, in one pass: rotate, and write keys and values to the cache."""

import torch
import triton
import triton.language as tl

from minivllm_kernels.early_launch import early_launch, let_next_start, wait_for_inputs
from minivllm_kernels.tensor_checks import require_dense_rows, require_fused_heads


def rotate_and_cache(
    heads: torch.Tensor,
    positions: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
) -> None:
    """Rotate the queries of T tokens in place, and write their rotated keys and their values to the paged cache.

    The rotation is that of `rotary_embedding`, computed in float32 and rounded once (RoPE; Su et al., 2021). Where
    two tokens have the same slot, as padding may, either of them is written.

    Args:
        heads: `[T, Hq + 2 * Hkv, D]`: query, key and value heads of each token side by side, as a fused
            projection leaves them. The query heads are overwritten, the others are not.
        positions: `[T]` int64, each from 0 to P - 1.
        cos_sin_cache: `[P, D]` float32, contiguous: row p holds the cosines of D/2 angles, then their sines.
        slot_mapping: `[T]` int64; slot = block_id * block_size + offset.
        key_cache: `[num_blocks, Hkv, block_size, D]`, dtype of `heads`, written.
        value_cache: as `key_cache`, of the same strides, written.

    Raises:
        InvalidTensor: The shapes, dtypes or layouts do not fit each other.
    """
    require_fused_heads(heads, positions, cos_sin_cache, slot_mapping, key_cache, value_cache)
    for name, tensor in (("heads", heads), ("cos_sin_cache", cos_sin_cache)):
        require_dense_rows(name, tensor)
    num_tokens, num_heads, head_dim = heads.shape
    _, num_kv_heads, block_size, _ = key_cache.shape
    group_size = num_heads // num_kv_heads - 2
    _rotate_and_cache_kernel[(num_tokens, num_kv_heads)](
        heads,
        positions,
        cos_sin_cache,
        slot_mapping,
        key_cache,
        value_cache,
        heads.stride(),
        key_cache.stride(),
        BLOCK_SIZE=block_size,
        GROUP_SIZE=group_size,
        HALF_DIM=head_dim // 2,
        num_warps=min(max(triton.next_power_of_2(group_size * head_dim) // 512, 1), 4),
        **early_launch(heads.device),
    )


@triton.jit
def _rotate_and_cache_kernel(
    heads_ptr,
    positions_ptr,
    cos_sin_ptr,
    slot_mapping_ptr,
    key_cache_ptr,
    value_cache_ptr,
    heads_strides,
    cache_strides,
    BLOCK_SIZE: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
    HALF_DIM: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One program serves one KV head of one token, and the query heads that share it."""
    # 64 bits: token × stride and block id × stride pass 2^31 in large batches and pools.
    token = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    num_kv_heads = tl.num_programs(1)
    dims = tl.arange(0, triton.next_power_of_2(HALF_DIM))
    dim_mask = dims < HALF_DIM
    let_next_start(EARLY)
    wait_for_inputs(EARLY)
    cos_ptr = cos_sin_ptr + tl.load(positions_ptr + token) * (2 * HALF_DIM) + dims
    cos = tl.load(cos_ptr, mask=dim_mask, other=0.0)
    sin = tl.load(cos_ptr + HALF_DIM, mask=dim_mask, other=0.0)
    token_ptr = heads_ptr + token * heads_strides[0]

    group = tl.arange(0, triton.next_power_of_2(GROUP_SIZE))
    query_ptr = token_ptr + (kv_head * GROUP_SIZE + group)[:, None] * heads_strides[1] + dims[None, :]
    query_mask = (group < GROUP_SIZE)[:, None] & dim_mask[None, :]
    first = tl.load(query_ptr, mask=query_mask, other=0.0)
    second = tl.load(query_ptr + HALF_DIM, mask=query_mask, other=0.0)
    rotated_first, rotated_second = _rotate(first, second, cos[None, :], sin[None, :])
    tl.store(query_ptr, rotated_first, mask=query_mask)
    tl.store(query_ptr + HALF_DIM, rotated_second, mask=query_mask)

    slot = tl.load(slot_mapping_ptr + token)
    target = (slot // BLOCK_SIZE) * cache_strides[0] + (slot % BLOCK_SIZE) * cache_strides[2]
    target += kv_head * cache_strides[1] + dims
    key_ptr = token_ptr + (num_kv_heads * GROUP_SIZE + kv_head) * heads_strides[1] + dims
    first = tl.load(key_ptr, mask=dim_mask, other=0.0)
    second = tl.load(key_ptr + HALF_DIM, mask=dim_mask, other=0.0)
    rotated_first, rotated_second = _rotate(first, second, cos, sin)
    tl.store(key_cache_ptr + target, rotated_first, mask=dim_mask)
    tl.store(key_cache_ptr + target + HALF_DIM, rotated_second, mask=dim_mask)
    value_ptr = key_ptr + num_kv_heads * heads_strides[1]
    tl.store(value_cache_ptr + target, tl.load(value_ptr, mask=dim_mask), mask=dim_mask)
    tl.store(value_cache_ptr + target + HALF_DIM, tl.load(value_ptr + HALF_DIM, mask=dim_mask), mask=dim_mask)


@triton.jit
def _rotate(first, second, cos, sin):
    """Rotate the pairs (first, second) by their angles."""
    wide_first, wide_second = first.to(tl.float32), second.to(tl.float32)
    rotated_first = wide_first * cos - wide_second * sin
    rotated_second = wide_second * cos + wide_first * sin
    return rotated_first.to(first.dtype), rotated_second.to(first.dtype)
