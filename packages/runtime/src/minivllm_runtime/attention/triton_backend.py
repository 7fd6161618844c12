"""Paged attention from Triton kernels, for CUDA devices (or the Triton interpreter in tests)."""

from collections.abc import Sequence

from torch import Tensor

from minivllm_kernels.attention_config import PrefillTiles
from minivllm_kernels.decode_step import PagedContexts
from minivllm_kernels.head_norms import HeadNorms
from minivllm_kernels.paged_decode_attention import rotate_cache_and_attend
from minivllm_kernels.paged_prefill_attention import locate_tiles, paged_prefill_attention
from minivllm_kernels.rotate_and_cache import rotate_and_cache
from minivllm_runtime.attention.rotary import RotaryTables
from minivllm_runtime.attention.step_attention import BatchLayout


class TritonAttentionBackend:
    """Hands each step to the paged kernels.

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
        self._tiles: PrefillTiles | None = None
        max_query_len = max(layout.query_lens)
        if max_query_len > 1:
            self._tiles = locate_tiles(
                layout.query_start_loc, caches[0][0], num_heads, len(layout.slot_mapping), max_query_len
            )

    def attend(
        self, layer_index: int, heads: Tensor, rotary: RotaryTables, norms: HeadNorms | None = None
    ) -> Tensor:
        """Normalize, rotate, write K and V, attend: one pass for rows of one token each, else two."""
        layout, caches = self._layout, self._caches[layer_index]
        if self._tiles is None:
            contexts = PagedContexts(layout.block_tables, layout.context_lens_device, layout.longest_first)
            return rotate_cache_and_attend(heads, rotary.cos_sin, *caches, contexts, self._scale, norms)
        rotate_and_cache(heads, rotary.positions, rotary.cos_sin, layout.slot_mapping, *caches, norms)
        return paged_prefill_attention(
            heads[:, : self._num_heads],
            *caches,
            layout.block_tables,
            layout.query_start_loc,
            layout.context_lens_device,
            self._scale,
            self._tiles,
        )
