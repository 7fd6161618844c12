"""Twin of `minivllm_kernels.rotary_embedding`."""

import torch

from minivllm_kernels.tensor_checks import require_rotary


def rotary_embedding(
    query: torch.Tensor, key: torch.Tensor, positions: torch.Tensor, cos_sin_cache: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate queries and keys by the angles of their positions, in place (RoPE; Su et al., 2021).

    Half-split layout: dimension i is paired with i + D/2, as in GPT-NeoX and Hugging Face's Llama. The
    rotation is computed in float32 and rounded once.

    Args:
        query: `[T, Hq, D]`, overwritten.
        key: `[T, Hkv, D]`, overwritten.
        positions: `[T]` int64, each below P.
        cos_sin_cache: `[P, D]` float32: row p holds the cosines of D/2 angles, then their sines.

    Returns:
        `(query, key)`: the tensors that were passed in.

    Raises:
        InvalidTensor: The shapes or dtypes do not fit each other.
    """
    require_rotary(query, key, positions, cos_sin_cache)
    cos, sin = cos_sin_cache[positions, None].chunk(2, dim=-1)
    for heads in (query, key):
        first, second = heads.float().chunk(2, dim=-1)
        heads.copy_(torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1))
    return query, key
