"""Twin of `minivllm_kernels.small_batch_linear`."""

import torch

from minivllm_kernels.tensor_checks import require_small_batch


def small_batch_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Multiply a few vectors by a matrix.

    Args:
        x: `[T, K]`, T at most 8, float16 or bfloat16; rows of any stride.
        weight: `[N, K]`, dtype of `x`, contiguous.
        bias: `[N]`, dtype of `x`.

    Returns:
        `[T, N]`, x · weightᵀ (+ bias), summed in float32 and rounded once to the dtype of `x`.

    Raises:
        InvalidTensor: The shapes, dtypes or layouts do not fit each other, or `x` has too many rows.
    """
    require_small_batch(x, weight, bias)
    output = x.float() @ weight.float().T
    return (output if bias is None else output + bias.float()).to(x.dtype)
