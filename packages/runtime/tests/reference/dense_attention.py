"""Attention over one whole sequence without a cache: what a tiny model needs in a test."""

from torch import Tensor
from torch.nn import functional


class DenseAttention:
    """Causal attention of one sequence to itself; see StepAttention."""

    def attend(self, layer_index: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        group_size = query.shape[1] // key.shape[1]
        query, key, value = (each.transpose(0, 1) for each in (query, key, value))
        key, value = (each.repeat_interleave(group_size, dim=0) for each in (key, value))
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(0, 1)
