"""Twin of `minivllm_kernels.gemv`."""

import torch
from torch.nn import functional

from minivllm_kernels.tensor_checks import require_even_rows, require_linear


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


def gated_gemv(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Multiply one vector by the matrices of a gate and of what it gates (SwiGLU; Shazeer, 2020).

    Args:
        x: `[1, K]`.
        weight: `[2N, K]`, dtype of `x`, contiguous: the gate's rows, then the others.
        bias: `[2N]`, dtype of `x`.

    Returns:
        `[1, N]`, silu(first half of x · weightᵀ (+ bias)) · second half; rounded once to the dtype of `x`.

    Raises:
        InvalidTensor: The shapes or dtypes do not fit each other, or `x` has not one row.
    """
    require_linear(x, weight, bias, num_rows=1)
    require_even_rows("weight", weight)
    product = x.float() @ weight.float().T
    gate, up = (product if bias is None else product + bias.float()).chunk(2, dim=-1)
    return (functional.silu(gate) * up).to(x.dtype)
