# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Write the keys and values of new tokens into their slots of the paged KV cache."""

import torch
import triton
import triton.language as tl

from minivllm_kernels.tensor_checks import require_dense_rows, require_dtype, require_kv_cache, require_shape


def reshape_and_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Write the keys and values of T tokens into their slots of the paged cache, in place.

    All tensors live on one device and, but for `slot_mapping`, have one dtype. Only the last dimension must
    be contiguous, so `key` and `value` may be views of a fused q/k/v projection. Where two tokens have the
    same slot, as padding may, either of them is written.

    Args:
        key: `[T, Hkv, D]`.
        value: `[T, Hkv, D]`.
        key_cache: `[num_blocks, Hkv, block_size, D]`, written.
        value_cache: as `key_cache`, of the same strides, written.
        slot_mapping: `[T]` int64; slot = block_id * block_size + offset.

    Raises:
        InvalidTensor: The shapes, dtypes or layouts do not fit each other.
    """
    require_kv_cache(key_cache, value_cache)
    _, num_kv_heads, block_size, head_dim = key_cache.shape
    num_tokens = slot_mapping.shape[0]
    for name, tensor in (("key", key), ("value", value)):
        require_shape(name, tensor, (num_tokens, num_kv_heads, head_dim))
        require_dtype(name, tensor, key_cache.dtype)
        require_dense_rows(name, tensor)
    require_dtype("slot_mapping", slot_mapping, torch.int64)
    _write_token_kernel[(num_tokens,)](
        key,
        value,
        key_cache,
        value_cache,
        slot_mapping,
        key.stride(),
        value.stride(),
        key_cache.stride(),
        BLOCK_SIZE=block_size,
        NUM_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
    )


@triton.jit
def _write_token_kernel(
    key_ptr,
    value_ptr,
    key_cache_ptr,
    value_cache_ptr,
    slot_mapping_ptr,
    key_strides,
    value_strides,
    cache_strides,
    BLOCK_SIZE: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
):
    """One program copies all heads of one token."""
    # 64 bits: token × stride and block id × stride pass 2^31 in large batches and pools.
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_mapping_ptr + token)
    heads = tl.arange(0, triton.next_power_of_2(NUM_HEADS))[:, None]
    dims = tl.arange(0, triton.next_power_of_2(HEAD_DIM))[None, :]
    mask = (heads < NUM_HEADS) & (dims < HEAD_DIM)
    key = tl.load(key_ptr + token * key_strides[0] + heads * key_strides[1] + dims, mask=mask)
    value = tl.load(value_ptr + token * value_strides[0] + heads * value_strides[1] + dims, mask=mask)
    target = (slot // BLOCK_SIZE) * cache_strides[0] + (slot % BLOCK_SIZE) * cache_strides[2]
    tl.store(key_cache_ptr + target + heads * cache_strides[1] + dims, key, mask=mask)
    tl.store(value_cache_ptr + target + heads * cache_strides[1] + dims, value, mask=mask)
