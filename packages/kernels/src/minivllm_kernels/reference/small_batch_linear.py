"""Twin of `minivllm_kernels.small_batch_linear`."""

import torch

from minivllm_kernels.reference.silu_and_mul import silu_and_mul
from minivllm_kernels.tensor_checks import (
    GROUP_ROWS,
    require_gate_up_groups,
    require_small_batch,
    require_splits,
)


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


def small_batch_gated_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Multiply a few vectors by a gate and an up projection, and join both: SwiGLU (Shazeer, 2020).

    Args:
        x: `[T, K]`, as of `small_batch_linear`.
        weight: `[2I, K]`, rows of gate and up in turn (`interleave_gate_up`), dtype of `x`, contiguous.
        bias: `[2I]` in the same order, dtype of `x`.

    Returns:
        `[T, I]`, silu(x · gateᵀ) · (x · upᵀ), computed in float32 and rounded once to the dtype of `x`.

    Raises:
        InvalidTensor: The shapes, dtypes or layouts do not fit each other, or `x` has too many rows.
    """
    require_small_batch(x, weight, bias)
    require_gate_up_groups("weight", weight)
    product = x.float() @ weight.float().T
    if bias is not None:
        product += bias.float()
    return silu_and_mul(product, GROUP_ROWS).to(x.dtype)
