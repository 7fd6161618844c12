"""Twin of `minivllm_kernels.silu_and_mul`."""

import torch

from minivllm_kernels.tensor_checks import require_gate_up


def silu_and_mul(x: torch.Tensor, group_size: int | None = None) -> torch.Tensor:
    """Multiply the up half of each row by the SiLU of its gate half (SwiGLU; Shazeer, 2020).

    Args:
        x: `[T, 2I]`: gate, then up; or `group_size` elements of gate, as many of up, and so on.
        group_size: a divisor of I; None: I.

    Returns:
        `[T, I]` in the dtype of `x`; the SiLU is computed in float32 and rounded to that dtype, then
        multiplied.

    Raises:
        InvalidTensor: `x` has not two dimensions or its rows cannot be halved; or `group_size` does not divide I.
    """
    require_gate_up(x, group_size)
    num_tokens, size = x.shape[0], x.shape[1] // 2
    group_size = group_size or size
    gate, up = x.reshape(num_tokens, size // group_size, 2, group_size).unbind(2)
    return (torch.nn.functional.silu(gate) * up).reshape(num_tokens, size)
