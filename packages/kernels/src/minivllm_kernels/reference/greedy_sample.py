"""Twin of `minivllm_kernels.greedy_sample`."""

import torch

from minivllm_kernels.tensor_checks import require_greedy_sample


def greedy_sample(
    logits: torch.Tensor, token_ids: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """Find the largest logit of each of R rows, and write its id to the requests' known ids.

    Args:
        logits: `[R, V]`, rows of any stride.
        token_ids: `[S, L]` int64, written at `[slots, positions]`.
        slots: `[R]` int64, a row of `token_ids` each.
        positions: `[R]` int64 or int32.

    Returns:
        `[R]` int64; of several largest logits the first, of NaN any id.

    Raises:
        InvalidTensor: The shapes, dtypes or layouts do not fit each other.
    """
    require_greedy_sample(logits, token_ids, slots, positions)
    largest = logits.amax(dim=-1, keepdim=True)
    sampled = (logits == largest).int().argmax(dim=-1)
    token_ids[slots, positions.long()] = sampled
    return sampled
