"""Twin of `minivllm_kernels.small_batch_linear`."""

import torch

from minivllm_kernels.tensor_checks import require_small_batch, require_splits


def small_batch_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *, num_splits: int = 1
) -> torch.Tensor:
    """Multiply a few vectors by a matrix.

    Args:
        x: `[T, K]`, T at most 256, float16 or bfloat16; rows of any stride of whole 16 bytes.
        weight: `[N, K]`, dtype of `x`, contiguous.
        bias: `[N]`, dtype of `x`.
        num_splits: S, at most 32; above 1 K is cut into so many parts, whose products the caller adds.

    Returns:
        `[T, N]`, x · weightᵀ (+ bias), summed in float32 and rounded once to the dtype of `x`; of several parts
        `[S, T, N]` float32, a sum for each, to the first of which `bias` is added. How K is cut is up to the op.

    Raises:
        InvalidTensor: The shapes, dtypes or layouts do not fit each other, or `x` has too many rows.
    """
    require_small_batch(x, weight, bias)
    require_splits(num_splits)
    columns = torch.arange(x.shape[1], device=x.device).chunk(num_splits)
    parts = x.new_zeros((num_splits, x.shape[0], weight.shape[0]), dtype=torch.float32)
    for part, chosen in enumerate(columns):
        parts[part] = x[:, chosen].float() @ weight[:, chosen].float().T
    if bias is not None:
        parts[0] += bias.float()
    return parts[0].to(x.dtype) if num_splits == 1 else parts
