"""Twin of `minivllm_kernels.silu_and_mul`."""

import torch

from minivllm_kernels.tensor_checks import require_gate_up


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """Gate the second half of each row with the SiLU of its first half (SwiGLU; Shazeer, 2020).

    Args:
        x: `[T, 2I]`: gate, then up.

    Returns:
        `[T, I]` in the dtype of `x`; the SiLU is computed in float32 and rounded to that dtype, then
        multiplied.

    Raises:
        InvalidTensor: `x` has not two dimensions or its rows cannot be halved.
    """
    require_gate_up(x)
    gate, up = x.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up
