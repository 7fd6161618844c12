"""RMS norm by plain operations; and of query and key heads, for backends whose kernels have none."""

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

from minivllm_kernels.head_norms import HeadNorms

RootMeanSquareNorm = Callable[[Tensor, Tensor, float], Tensor]
"""x [..., D], weight [D] float32, eps -> x · weight / sqrt(mean(x²) + eps), [..., D]."""


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalize x [..., D] by plain operations, in float32; weight [D] is float32."""
    # Widened by hand: mixed dtypes inside one operation take a path that is twenty times slower.
    return functional.rms_norm(x.float(), weight.shape, weight, eps).to(x.dtype)


def normalize_heads(
    heads: Tensor, num_kv_heads: int, norms: HeadNorms, norm: RootMeanSquareNorm = rms_norm
) -> None:
    """Normalize the query and key heads of heads [T, Hq + 2·Hkv, D] in place."""
    num_heads = heads.shape[1] - 2 * num_kv_heads
    query, key, _ = heads.tensor_split((num_heads, num_heads + num_kv_heads), dim=1)
    for each, weight in ((query, norms.query), (key, norms.key)):
        each.copy_(norm(each, weight, norms.eps))
