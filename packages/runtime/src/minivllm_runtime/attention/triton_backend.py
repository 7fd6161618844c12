"""Paged attention from Triton kernels, for CUDA devices (or the Triton interpreter in tests)."""

from collections.abc import Sequence

from torch import Tensor

from minivllm_kernels.paged_decode_attention import paged_decode_attention
from minivllm_kernels.paged_prefill_attention import paged_prefill_attention
from minivllm_kernels.rotate_and_cache import rotate_and_cache
from minivllm_runtime.attention.step_attention import BatchLayout
from minivllm_runtime.layers.rotary import RotaryTables


class TritonAttentionBackend:
    """Hands each step to the paged kernels; there is nothing to plan but which kernel serves it.

    Args:
        pools: KV cache of each layer, [2, num_blocks + 1, Hkv, block_size, D].
        num_heads: Hq.
        scale: Of the scores.
    """

    reads_unwritten_slots = False

    def __init__(self, pools: Sequence[Tensor], num_heads: int, scale: float) -> None:
        self._caches = tuple((pool[0], pool[1]) for pool in pools)
        self._num_heads = num_heads
        self._scale = scale

    def plan(self, layout: BatchLayout) -> "TritonStepAttention":
        """Bind the step's layout."""
        return TritonStepAttention(self._caches, self._num_heads, self._scale, layout)


class TritonStepAttention:
    """Attention of one step; see StepAttention.

    Args:
        caches: Key and value cache of each layer, each [num_blocks + 1, Hkv, block_size, D].
        num_heads: Hq.
        scale: Of the scores.
        layout: The step's.
    """

    def __init__(
        self, caches: Sequence[tuple[Tensor, Tensor]], num_heads: int, scale: float, layout: BatchLayout
    ) -> None:
        self._caches = caches
        self._num_heads = num_heads
        self._scale = scale
        self._layout = layout
        self._max_query_len = max(layout.query_lens)

    def attend(self, layer_index: int, heads: Tensor, rotary: RotaryTables) -> Tensor:
        """Rotate, write the tokens' K and V, then attend with all their queries in one launch."""
        layout = self._layout
        key_cache, value_cache = self._caches[layer_index]
        rotate_and_cache(heads, rotary.positions, rotary.cos_sin, layout.slot_mapping, key_cache, value_cache)
        query = heads[:, : self._num_heads]
        if self._max_query_len == 1:
            return paged_decode_attention(
                query, key_cache, value_cache, layout.block_tables, layout.context_lens_device, self._scale
            )
        return paged_prefill_attention(
            query,
            key_cache,
            value_cache,
            layout.block_tables,
            layout.query_start_loc,
            layout.context_lens_device,
            self._scale,
            self._max_query_len,
        )
