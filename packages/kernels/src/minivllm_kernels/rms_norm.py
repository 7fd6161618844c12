# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""RMS normalization of rows, alone or fused with the residual addition before it."""

import torch
import triton
import triton.language as tl

from minivllm_kernels.tensor_checks import require_dtype, require_shape


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Divide each row by its root mean square, then scale by `weight` (Zhang and Sennrich, 2019).

    The row is normalized in float32 and rounded to the dtype of `x` before it meets `weight`, as in Hugging
    Face's Llama.

    Args:
        x: `[..., H]`; copied first if its rows have no common stride.
        weight: `[H]`, dtype of `x`.
        eps: added to the mean square.

    Returns:
        `[..., H]`, contiguous, in the dtype of `x`.

    Raises:
        InvalidTensor: `weight` does not fit `x`.
    """
    rows = _as_rows(x, weight)
    normed = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    hidden_size = x.shape[-1]
    _rms_norm_kernel[(rows.shape[0],)](
        normed,
        rows,
        weight,
        rows.stride(0),
        eps,
        HIDDEN_SIZE=hidden_size,
        num_warps=_num_warps(hidden_size),
    )
    return normed


def fused_add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add `x` to the residual stream and normalize the sum, in one pass over both.

    Args:
        x: `[..., H]`; copied first if its rows have no common stride.
        residual: `[..., H]`, dtype of `x`; likewise.
        weight: `[H]`, dtype of `x`.
        eps: added to the mean square.

    Returns:
        `(normed, new_residual)`, both `[..., H]` and contiguous; `new_residual` is the sum, rounded to the
        dtype of `x` before it is normalized. The arguments are not changed.

    Raises:
        InvalidTensor: `residual` or `weight` does not fit `x`.
    """
    require_shape("residual", residual, tuple(x.shape))
    require_dtype("residual", residual, x.dtype)
    rows, residual_rows = _as_rows(x, weight), _as_rows(residual, weight)
    normed = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    new_residual = torch.empty_like(normed)
    hidden_size = x.shape[-1]
    _fused_add_rms_norm_kernel[(rows.shape[0],)](
        normed,
        new_residual,
        rows,
        residual_rows,
        weight,
        rows.stride(0),
        residual_rows.stride(0),
        eps,
        HIDDEN_SIZE=hidden_size,
        num_warps=_num_warps(hidden_size),
    )
    return normed, new_residual


def _as_rows(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """View `x` as `[N, H]` with contiguous rows, copying only where no such view exists."""
    require_shape("weight", weight, (x.shape[-1],))
    require_dtype("weight", weight, x.dtype)
    rows = x.reshape(-1, x.shape[-1])
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def _num_warps(hidden_size: int) -> int:
    """Threads that give each about 16 elements of a row."""
    return min(max(int(triton.next_power_of_2(hidden_size)) // 512, 1), 16)


@triton.jit
def _rms_norm_kernel(
    normed_ptr,
    x_ptr,
    weight_ptr,
    stride_x_row,
    eps,
    HIDDEN_SIZE: tl.constexpr,
):
    """One program normalizes one row."""
    row = tl.program_id(0).to(tl.int64)
    dims = tl.arange(0, triton.next_power_of_2(HIDDEN_SIZE))
    mask = dims < HIDDEN_SIZE
    x = tl.load(x_ptr + row * stride_x_row + dims, mask=mask, other=0.0)
    weight = tl.load(weight_ptr + dims, mask=mask, other=0.0)
    normed = _normalize(x, weight, eps, HIDDEN_SIZE)
    tl.store(normed_ptr + row * HIDDEN_SIZE + dims, normed, mask=mask)


@triton.jit
def _fused_add_rms_norm_kernel(
    normed_ptr,
    new_residual_ptr,
    x_ptr,
    residual_ptr,
    weight_ptr,
    stride_x_row,
    stride_residual_row,
    eps,
    HIDDEN_SIZE: tl.constexpr,
):
    """One program adds and normalizes one row."""
    row = tl.program_id(0).to(tl.int64)
    dims = tl.arange(0, triton.next_power_of_2(HIDDEN_SIZE))
    mask = dims < HIDDEN_SIZE
    x = tl.load(x_ptr + row * stride_x_row + dims, mask=mask, other=0.0)
    residual = tl.load(residual_ptr + row * stride_residual_row + dims, mask=mask, other=0.0)
    weight = tl.load(weight_ptr + dims, mask=mask, other=0.0)
    total = (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype)
    normed = _normalize(total, weight, eps, HIDDEN_SIZE)
    tl.store(new_residual_ptr + row * HIDDEN_SIZE + dims, total, mask=mask)
    tl.store(normed_ptr + row * HIDDEN_SIZE + dims, normed, mask=mask)


@triton.jit
def _normalize(x, weight, eps, HIDDEN_SIZE: tl.constexpr):
    """Normalize one row, zero past its end, in float32; round; then scale by `weight`."""
    wide = x.to(tl.float32)
    mean_square = tl.sum(wide * wide, axis=0) / HIDDEN_SIZE
    normed = (wide * tl.rsqrt(mean_square + eps)).to(x.dtype)
    return (normed.to(tl.float32) * weight.to(tl.float32)).to(x.dtype)
