"""Attention over one whole sequence without a cache: what a tiny model needs in a test."""

from torch import Tensor
from torch.nn import functional

from minivllm_kernels.head_norms import HeadNorms
from minivllm_runtime.attention.head_norms import normalize_heads
from minivllm_runtime.attention.rotary import RotaryTables, Rotation


class DenseAttention:
    """Causal attention of one sequence to itself; see StepAttention."""

    def __init__(self, num_heads: int) -> None:
        self.num_heads = num_heads

    def attend(
        self, layer_index: int, heads: Tensor, rotary: RotaryTables, norms: HeadNorms | None = None
    ) -> Tensor:
        num_rotated = (self.num_heads + len(heads[0])) // 2
        if norms is not None:
            normalize_heads(heads, len(heads[0]) - num_rotated, norms)
        Rotation.of(rotary, heads.dtype).apply(heads[:, :num_rotated])
        query, key, value = heads.transpose(0, 1).tensor_split((self.num_heads, num_rotated))
        group_size = len(query) // len(key)
        key, value = (each.repeat_interleave(group_size, dim=0) for each in (key, value))
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(0, 1)
