# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""RMS normalization of rows, alone or fused with the residual addition before it."""

import torch
import triton
import triton.language as tl

from minivllm_kernels.early_launch import early_launch, let_next_start, wait_for_inputs
from minivllm_kernels.tensor_checks import require_dense_rows, require_dtype, require_residual, require_shape


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
        **early_launch(x.device),
    )
    return normed


def add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Add `x` to the residual stream in place and normalize the sum, in one pass over both.

    Args:
        x: `[T, H]`; or `[S, T, H]` float32, S parts of it (`small_batch_linear`): their sum is rounded, then added.
        residual: `[T, H]`, dtype of `x` if that is whole; becomes the sum, rounded before it is normalized.
        weight: `[H]`, dtype of `residual`.
        eps: added to the mean square.

    Returns:
        `[T, H]`, contiguous, the normalized sum, in the dtype of `residual`.

    Raises:
        InvalidTensor: The shapes, dtypes or layouts do not fit each other.
    """
    require_residual(x, residual, weight)
    for name, tensor in (("x", x), ("residual", residual)):
        require_dense_rows(name, tensor)
    normed = torch.empty(residual.shape, dtype=residual.dtype, device=residual.device)
    num_rows, hidden_size = residual.shape
    num_parts = x.shape[0] if x.ndim == 3 else 1
    _add_rms_norm_kernel[(num_rows,)](
        normed,
        x,
        residual,
        weight,
        x.stride(-2),
        x.stride(0),
        residual.stride(0),
        eps,
        NUM_PARTS=num_parts,
        HIDDEN_SIZE=hidden_size,
        num_warps=_num_warps(hidden_size),
        **early_launch(x.device),
    )
    return normed


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
    EARLY: tl.constexpr,
):
    """One program normalizes one row."""
    row = tl.program_id(0).to(tl.int64)
    dims = tl.arange(0, triton.next_power_of_2(HIDDEN_SIZE))
    mask = dims < HIDDEN_SIZE
    let_next_start(EARLY)
    weight = tl.load(weight_ptr + dims, mask=mask, other=0.0)
    wait_for_inputs(EARLY)
    x = tl.load(x_ptr + row * stride_x_row + dims, mask=mask, other=0.0)
    normed = _normalize(x, weight, eps, HIDDEN_SIZE)
    tl.store(normed_ptr + row * HIDDEN_SIZE + dims, normed, mask=mask)


@triton.jit
def _add_rms_norm_kernel(
    normed_ptr,
    x_ptr,
    residual_ptr,
    weight_ptr,
    stride_x_row,
    stride_x_part,
    stride_residual_row,
    eps,
    NUM_PARTS: tl.constexpr,
    HIDDEN_SIZE: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One program adds and normalizes one row."""
    row = tl.program_id(0).to(tl.int64)
    dims = tl.arange(0, triton.next_power_of_2(HIDDEN_SIZE))
    mask = dims < HIDDEN_SIZE
    let_next_start(EARLY)
    weight = tl.load(weight_ptr + dims, mask=mask, other=0.0)
    wait_for_inputs(EARLY)
    x_ptr += row * stride_x_row
    x = tl.load(x_ptr + dims, mask=mask, other=0.0).to(tl.float32)
    for part in tl.static_range(1, NUM_PARTS):
        x += tl.load(x_ptr + part * stride_x_part + dims, mask=mask, other=0.0)
    residual = tl.load(residual_ptr + row * stride_residual_row + dims, mask=mask, other=0.0)
    # A sum of parts is rounded as a whole product is.
    total = (x.to(residual.dtype).to(tl.float32) + residual.to(tl.float32)).to(residual.dtype)
    tl.store(residual_ptr + row * stride_residual_row + dims, total, mask=mask)
    normed = _normalize(total, weight, eps, HIDDEN_SIZE)
    tl.store(normed_ptr + row * HIDDEN_SIZE + dims, normed, mask=mask)


@triton.jit
def _normalize(x, weight, eps, HIDDEN_SIZE: tl.constexpr):
    """Normalize one row, zero past its end, in float32; round; then scale by `weight`."""
    wide = x.to(tl.float32)
    mean_square = tl.sum(wide * wide, axis=0) / HIDDEN_SIZE
    return scale_row(x, tl.rsqrt(mean_square + eps), weight)


@triton.jit
def scale_row(x, inverse_rms, weight):
    """Normalize in float32; round; then scale by `weight`, in the dtype of `x`."""
    normed = (x.to(tl.float32) * inverse_rms).to(x.dtype)
    return (normed.to(tl.float32) * weight.to(x.dtype).to(tl.float32)).to(x.dtype)
