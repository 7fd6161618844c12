"""Twin of `minivllm_kernels.rotate_and_cache`."""

import torch

from minivllm_kernels.head_norms import HeadNorms
from minivllm_kernels.reference.reshape_and_cache import reshape_and_cache
from minivllm_kernels.reference.rms_norm import rms_norm
from minivllm_kernels.reference.rotary_embedding import rotary_embedding
from minivllm_kernels.tensor_checks import require_fused_heads, require_head_norms


def rotate_and_cache(
    heads: torch.Tensor,
    positions: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    norms: HeadNorms | None = None,
) -> None:
    """Rotate the queries of T tokens in place, and write their rotated keys and their values to the paged cache.

    Args:
        heads: `[T, Hq + 2 * Hkv, D]`: query, key and value heads of each token side by side. The query heads are
            overwritten, the others are not.
        positions: `[T]` int64, each below P.
        cos_sin_cache: `[P, D]` float32: row p holds the cosines of D/2 angles, then their sines.
        slot_mapping: `[T]` int64; slot = block_id * block_size + offset.
        key_cache: `[num_blocks, Hkv, block_size, D]`, written.
        value_cache: as `key_cache`, written.
        norms: of the query and key heads, before they are rotated; None leaves them as they are.

    Raises:
        InvalidTensor: The shapes or dtypes do not fit each other.
    """
    require_fused_heads(heads, positions, cos_sin_cache, slot_mapping, key_cache, value_cache)
    require_head_norms(norms, heads.shape[2])
    num_kv_heads = key_cache.shape[1]
    num_heads = heads.shape[1] - 2 * num_kv_heads
    query, key, value = torch.split(heads, [num_heads, num_kv_heads, num_kv_heads], dim=1)
    key = key.clone()
    if norms is not None:
        for each, weight in ((query, norms.query), (key, norms.key)):
            each.copy_(rms_norm(each, weight.to(heads.dtype), norms.eps))
    rotary_embedding(query, key, positions, cos_sin_cache)
    reshape_and_cache(key, value, key_cache, value_cache, slot_mapping)
