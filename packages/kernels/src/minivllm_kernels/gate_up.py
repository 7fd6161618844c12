"""How the rows of a gate projection lie among those of the up projection.

Checkpoints have one after the other. A kernel that multiplies by both and applies the activation itself wants the
rows that belong together in one program, better still in one thread.
"""

import torch

from minivllm_kernels.tensor_checks import GROUP_ROWS, require_gate_up_groups


def interleave_gate_up(halves: torch.Tensor) -> torch.Tensor:
    """Reorder rows: GROUP_ROWS of gate, then as many of up, and so on.

    Args:
        halves: `[2I, ...]`, gate, then up: a weight or its bias.

    Returns:
        A copy, of the same shape.

    Raises:
        InvalidTensor: I is not a multiple of GROUP_ROWS.
    """
    require_gate_up_groups("halves", halves)
    groups = halves.reshape(2, -1, GROUP_ROWS, *halves.shape[1:])
    return groups.transpose(0, 1).reshape(halves.shape)
