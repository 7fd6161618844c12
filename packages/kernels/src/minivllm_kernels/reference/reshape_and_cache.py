"""Twin of `minivllm_kernels.reshape_and_cache`."""

import torch

from minivllm_kernels.tensor_checks import require_kv_cache, require_shape


def reshape_and_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Write the keys and values of T tokens into their slots of the paged cache, in place.

    Args:
        key: `[T, Hkv, D]`.
        value: `[T, Hkv, D]`.
        key_cache: `[num_blocks, Hkv, block_size, D]`.
        value_cache: as `key_cache`.
        slot_mapping: `[T]` int64; slot = block_id * block_size + offset.

    Raises:
        InvalidTensor: The shapes or layouts do not fit each other.
    """
    require_kv_cache(key_cache, value_cache)
    _, num_kv_heads, block_size, head_dim = key_cache.shape
    require_shape("key", key, (slot_mapping.shape[0], num_kv_heads, head_dim))
    require_shape("value", value, tuple(key.shape))
    block_ids, offsets = slot_mapping // block_size, slot_mapping % block_size
    key_cache[block_ids, :, offsets] = key
    value_cache[block_ids, :, offsets] = value
