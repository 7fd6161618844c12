# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""The activation of a gated MLP: SiLU of the gate times the up projection."""

import torch
import triton
import triton.language as tl

from minivllm_kernels.early_launch import early_launch, let_next_start, wait_for_inputs
from minivllm_kernels.tensor_checks import require_dense_rows, require_gate_up


def silu_and_mul(x: torch.Tensor, group_size: int | None = None) -> torch.Tensor:
    """Multiply the up half of each row by the SiLU of its gate half (SwiGLU; Shazeer, 2020).

    Args:
        x: `[T, 2I]`: gate, then up; or `group_size` elements of gate, as many of up, and so on.
        group_size: a divisor of I; None: I.

    Returns:
        `[T, I]` in the dtype of `x`; the SiLU is computed in float32 and rounded to that dtype, then
        multiplied.

    Raises:
        InvalidTensor: `x` has not two dimensions, its rows cannot be halved or are not contiguous; or `group_size` does
            not divide I.
    """
    require_gate_up(x, group_size)
    require_dense_rows("x", x)
    num_tokens, size = x.shape[0], x.shape[1] // 2
    output = torch.empty((num_tokens, size), dtype=x.dtype, device=x.device)
    tile = min(triton.next_power_of_2(size), 1024)
    _silu_and_mul_kernel[(num_tokens, triton.cdiv(size, tile))](
        output,
        x,
        x.stride(0),
        SIZE=size,
        GROUP_SIZE=group_size or size,
        TILE=tile,
        **early_launch(x.device),
    )
    return output


@triton.jit
def _silu_and_mul_kernel(
    output_ptr,
    x_ptr,
    stride_x_row,
    SIZE: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One program computes TILE elements of one row."""
    row = tl.program_id(0).to(tl.int64)
    dims = tl.program_id(1) * TILE + tl.arange(0, TILE)
    mask = dims < SIZE
    let_next_start(EARLY)
    wait_for_inputs(EARLY)
    gate_ptrs = x_ptr + row * stride_x_row + dims // GROUP_SIZE * (2 * GROUP_SIZE) + dims % GROUP_SIZE
    gate = tl.load(gate_ptrs, mask=mask, other=0.0)
    up = tl.load(gate_ptrs + GROUP_SIZE, mask=mask, other=0.0)
    wide_gate = gate.to(tl.float32)
    silu = (wide_gate * tl.sigmoid(wide_gate)).to(gate.dtype)
    tl.store(
        output_ptr + row * SIZE + dims, (silu.to(tl.float32) * up.to(tl.float32)).to(up.dtype), mask=mask
    )
