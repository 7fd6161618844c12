# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Matrix product for a few rows: the projections of a step with 2 to 8 tokens.

Nothing but reading the weight takes time, as for one row, but the arithmetic needs tensor cores. Their operands are
fed from registers: 16 bytes of a weight row in a thread are its part of an `mma` operand as they are, since it does not
matter to a sum which column of K is which, as long as both operands agree. So loads take no detour through shared
memory, and the first of them are in flight while the kernel before still runs.

Written in Gluon, Triton's lower level, where a load names its layout. There is no interpreter for that.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from minivllm_kernels.early_launch import early_launch
from minivllm_kernels.tensor_checks import MAX_SMALL_BATCH, require_small_batch

_ROWS = 16
"""Rows of the weight in a program: the height of an `mma`."""


class SmallBatchConfig(NamedTuple):
    """Elements of a row that a warp reads at once, and warps, which share K."""

    tile_k: int
    num_warps: int


FEW_ROWS = SmallBatchConfig(tile_k=256, num_warps=8)
MANY_ROWS = SmallBatchConfig(tile_k=128, num_warps=4)


def small_batch_config(num_rows: int) -> SmallBatchConfig:
    """What measured best on an H200 for a weight of so many rows (`PERFORMANCE.md`)."""
    return FEW_ROWS if num_rows < 4096 else MANY_ROWS


@lru_cache
def runs_small_batches(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether `small_batch_linear` runs there: on a GPU of compute capability 8.0 or more, in half precision."""
    return (
        device.type == "cuda"
        and dtype in (torch.float16, torch.bfloat16)
        and torch.cuda.get_device_capability(device) >= (8, 0)
    )


def small_batch_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Multiply a few vectors by a matrix, where `runs_small_batches`.

    Args:
        x: `[T, K]`, T at most `MAX_SMALL_BATCH`, float16 or bfloat16; rows of any stride.
        weight: `[N, K]`, dtype of `x`, contiguous.
        bias: `[N]`, dtype of `x`.

    Returns:
        `[T, N]`, x · weightᵀ (+ bias), summed in float32 and rounded once to the dtype of `x`.

    Raises:
        InvalidTensor: The shapes, dtypes or layouts do not fit each other, or `x` has too many rows.
    """
    require_small_batch(x, weight, bias)
    num_tokens = x.shape[0]
    num_rows, row_size = weight.shape
    config = small_batch_config(num_rows)
    output = torch.empty((num_tokens, num_rows), dtype=x.dtype, device=x.device)
    _small_batch_kernel[(triton.cdiv(num_rows, _ROWS),)](
        output,
        x,
        weight,
        bias,
        num_tokens,
        num_rows,
        x.stride(0),
        ROW_SIZE=row_size,
        TOKENS=MAX_SMALL_BATCH,
        ROWS=_ROWS,
        TILE_K=config.tile_k,
        WARPS=config.num_warps,
        num_warps=config.num_warps,
        **early_launch(x.device),
    )
    return output


@gluon.jit(do_not_specialize=["num_tokens"])
def _small_batch_kernel(
    output_ptr,
    x_ptr,
    weight_ptr,
    bias_ptr,
    num_tokens,
    num_rows,
    stride_x,
    ROW_SIZE: gl.constexpr,
    TOKENS: gl.constexpr,
    ROWS: gl.constexpr,
    TILE_K: gl.constexpr,
    WARPS: gl.constexpr,
    EARLY: gl.constexpr,
):
    """One program computes ROWS columns of the output; each warp sums over tiles of K of its own."""
    sums: gl.constexpr = gl.NVMMADistributedLayout(
        version=[2, 0], warps_per_cta=[WARPS, 1, 1], instr_shape=[1, 16, 8]
    )
    # 8 elements, or 16 bytes, of K side by side in a thread.
    left: gl.constexpr = gl.DotOperandLayout(0, sums, 8)
    right: gl.constexpr = gl.DotOperandLayout(1, sums, 8)
    ROUND: gl.constexpr = WARPS * TILE_K
    if EARLY:
        gdc_launch_dependents()
    first_row = gl.program_id(0) * ROWS
    rows = first_row + _axis(ROWS, 1, left)
    weight_k = _axis(WARPS, 0, left) * TILE_K + _axis(TILE_K, 2, left)
    # 64 bits: row × K passes 2^31 in the head of a large vocabulary.
    weight_ptrs = weight_ptr + rows.to(gl.int64) * ROW_SIZE + weight_k
    row_mask = rows < num_rows
    tokens = _axis(TOKENS, 2, right)
    x_k = _axis(WARPS, 0, right) * TILE_K + _axis(TILE_K, 1, right)
    x_ptrs = x_ptr + tokens * stride_x + x_k

    # Two rounds of the weight are always in flight.
    weight = gl.load(weight_ptrs, mask=row_mask & (weight_k < ROW_SIZE), other=0.0)
    following = weight
    if ROUND < ROW_SIZE:
        following = gl.load(weight_ptrs + ROUND, mask=row_mask & (weight_k < ROW_SIZE - ROUND), other=0.0)
    if EARLY:
        gdc_wait()
    sums_by_warp = gl.zeros([WARPS, ROWS, TOKENS], gl.float32, sums)
    for first in gl.static_range(0, ROW_SIZE, ROUND):
        x = gl.load(x_ptrs + first, mask=(tokens < num_tokens) & (x_k < ROW_SIZE - first), other=0.0)
        sums_by_warp = mma_v2(weight, x, sums_by_warp)
        weight = following
        if first + 2 * ROUND < ROW_SIZE:
            mask = row_mask & (weight_k < ROW_SIZE - first - 2 * ROUND)
            following = gl.load(weight_ptrs + first + 2 * ROUND, mask=mask, other=0.0)
    output = gl.sum(sums_by_warp, 0)

    flat: gl.constexpr = gl.SliceLayout(0, sums)
    out_rows = first_row + gl.expand_dims(gl.arange(0, ROWS, layout=gl.SliceLayout(1, flat)), 1)
    out_tokens = gl.expand_dims(gl.arange(0, TOKENS, layout=gl.SliceLayout(0, flat)), 0)
    if bias_ptr is not None:
        output += gl.load(bias_ptr + out_rows, mask=out_rows < num_rows, other=0.0).to(gl.float32)
    mask = (out_rows < num_rows) & (out_tokens < num_tokens)
    output_ptrs = output_ptr + out_tokens * num_rows + out_rows
    gl.store(output_ptrs, output.to(output_ptr.dtype.element_ty), mask=mask)


@gluon.jit
def _axis(SIZE: gl.constexpr, AXIS: gl.constexpr, LAYOUT: gl.constexpr):
    """0, 1, ... SIZE - 1 along one axis of a three-dimensional layout; the others have length 1."""
    FIRST: gl.constexpr = 1 if AXIS == 0 else 0
    SECOND: gl.constexpr = 1 if AXIS == 2 else 2
    numbers = gl.arange(0, SIZE, layout=gl.SliceLayout(FIRST, gl.SliceLayout(SECOND, LAYOUT)))
    return gl.expand_dims(gl.expand_dims(numbers, FIRST), SECOND)
