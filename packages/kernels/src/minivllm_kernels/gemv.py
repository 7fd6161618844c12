# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Matrix-vector product: the projections of a step with one token.

Nothing but reading the weight takes time, so each program streams a few rows of it, and reads the first of them
while the kernel before still runs.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from minivllm_kernels.early_launch import early_launch, let_next_start, wait_for_inputs
from minivllm_kernels.tensor_checks import require_dense_rows, require_linear


class GemvConfig(NamedTuple):
    """Rows of the weight in a program, elements of a row read at once, and warps."""

    rows: int
    tile_k: int
    num_warps: int


LONG_ROWS = GemvConfig(rows=4, tile_k=2048, num_warps=8)
MANY_ROWS = GemvConfig(rows=4, tile_k=1024, num_warps=4)
FEW_ROWS = GemvConfig(rows=2, tile_k=1024, num_warps=4)


def gemv_config(num_rows: int, row_size: int) -> GemvConfig:
    """What measured best on an H200 for a weight of this shape (`PERFORMANCE.md`)."""
    if row_size > 4096:
        return LONG_ROWS
    return MANY_ROWS if num_rows > 8192 else FEW_ROWS


def gemv(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Multiply one vector by a matrix.

    Args:
        x: `[1, K]`.
        weight: `[N, K]`, dtype of `x`, contiguous.
        bias: `[N]`, dtype of `x`.

    Returns:
        `[1, N]`, x · weightᵀ (+ bias), summed in float32 and rounded once to the dtype of `x`.

    Raises:
        InvalidTensor: The shapes, dtypes or layouts do not fit each other, or `x` has not one row.
    """
    require_linear(x, weight, bias, num_rows=1)
    require_dense_rows("x", x)
    num_rows, row_size = weight.shape
    config = gemv_config(num_rows, row_size)
    output = torch.empty((1, num_rows), dtype=x.dtype, device=x.device)
    _gemv_kernel[(triton.cdiv(num_rows, config.rows),)](
        output,
        x,
        weight,
        bias,
        num_rows,
        ROW_SIZE=row_size,
        ROWS=config.rows,
        TILE_K=config.tile_k,
        num_warps=config.num_warps,
        **early_launch(x.device),
    )
    return output


@triton.jit
def _gemv_kernel(
    output_ptr,
    x_ptr,
    weight_ptr,
    bias_ptr,
    num_rows,
    ROW_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    TILE_K: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One program computes ROWS elements of the output."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row_mask = rows < num_rows
    let_next_start(EARLY)
    weight = _load_tile(weight_ptr, rows, row_mask, 0, ROW_SIZE, TILE_K)
    wait_for_inputs(EARLY)
    products = weight.to(tl.float32) * _load_x(x_ptr, 0, ROW_SIZE, TILE_K)
    for first in tl.static_range(TILE_K, ROW_SIZE, TILE_K):
        weight = _load_tile(weight_ptr, rows, row_mask, first, ROW_SIZE, TILE_K)
        products += weight.to(tl.float32) * _load_x(x_ptr, first, ROW_SIZE, TILE_K)
    output = tl.sum(products, axis=1)
    if bias_ptr is not None:
        output += tl.load(bias_ptr + rows, mask=row_mask, other=0.0).to(tl.float32)
    tl.store(output_ptr + rows, output.to(output_ptr.dtype.element_ty), mask=row_mask)


@triton.jit
def _load_tile(weight_ptr, rows, row_mask, first, ROW_SIZE: tl.constexpr, TILE_K: tl.constexpr):
    """Elements `first` to `first + TILE_K` of some rows: `[ROWS, TILE_K]`, zeros past their end."""
    elements = first + tl.arange(0, TILE_K)
    # 64 bits: row × K passes 2^31 in the head of a large vocabulary.
    offsets = rows.to(tl.int64)[:, None] * ROW_SIZE + elements[None, :]
    return tl.load(weight_ptr + offsets, mask=row_mask[:, None] & (elements < ROW_SIZE)[None, :], other=0.0)


@triton.jit
def _load_x(x_ptr, first, ROW_SIZE: tl.constexpr, TILE_K: tl.constexpr):
    """The matching elements of the vector: `[1, TILE_K]` float32."""
    elements = first + tl.arange(0, TILE_K)
    return tl.load(x_ptr + elements, mask=elements < ROW_SIZE, other=0.0).to(tl.float32)[None, :]
