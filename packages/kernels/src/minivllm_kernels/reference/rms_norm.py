"""Twins of `minivllm_kernels.rms_norm`."""

import torch

from minivllm_kernels.tensor_checks import require_dtype, require_residual, require_shape


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Divide each row by its root mean square, then scale by `weight` (Zhang and Sennrich, 2019).

    The row is normalized in float32 and rounded to the dtype of `x` before it meets `weight`, as in Hugging
    Face's Llama.

    Args:
        x: `[..., H]`.
        weight: `[H]`, dtype of `x`.
        eps: added to the mean square.

    Returns:
        `[..., H]` in the dtype of `x`.

    Raises:
        InvalidTensor: `weight` does not fit `x`.
    """
    require_shape("weight", weight, (x.shape[-1],))
    require_dtype("weight", weight, x.dtype)
    wide = x.float()
    normed = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return normed.to(x.dtype) * weight


def add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Add `x` to the residual stream in place and normalize the sum.

    Args:
        x: `[T, H]`; or `[S, T, H]` float32, S parts of it: their sum is rounded, then added.
        residual: `[T, H]`, dtype of `x` if that is whole; becomes the sum, rounded before it is normalized.
        weight: `[H]`, dtype of `residual`.
        eps: added to the mean square.

    Returns:
        `[T, H]`, the normalized sum, in the dtype of `residual`.

    Raises:
        InvalidTensor: `residual` or `weight` does not fit `x`.
    """
    require_residual(x, residual, weight)
    if x.ndim == 3:
        x = x.sum(dim=0).to(residual.dtype)
    return rms_norm(residual.add_(x), weight, eps)
