"""Twin of `minivllm_kernels.gemv`."""

import torch

from minivllm_kernels.tensor_checks import require_linear


def gemv(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Multiply one vector by a matrix.

    Args:
        x: `[1, K]`.
        weight: `[N, K]`, dtype of `x`, contiguous.
        bias: `[N]`, dtype of `x`.

    Returns:
        `[1, N]`, x · weightᵀ (+ bias), summed in float32 and rounded once to the dtype of `x`.

    Raises:
        InvalidTensor: The shapes or dtypes do not fit each other, or `x` has not one row.
    """
    require_linear(x, weight, bias, num_rows=1)
    output = x.float() @ weight.float().T
    return (output if bias is None else output + bias.float()).to(x.dtype)
