"""Paged attention from the compiled kernels, for bfloat16 on CPUs with AVX512-BF16."""

from collections.abc import Sequence

from torch import Tensor

from minivllm_kernels.cpu.ops import CpuOps
from minivllm_kernels.head_norms import HeadNorms
from minivllm_runtime.attention.head_norms import normalize_heads
from minivllm_runtime.attention.rotary import RotaryTables
from minivllm_runtime.attention.step_attention import BatchLayout


class NativeAttentionBackend:
    """Hands each step to the kernels; there is nothing to plan.

    Args:
        kernels: Loaded.
        pools: KV cache of each layer, [2, num_blocks + 1, Hkv, block_size, D].
        num_heads: Hq.
        scale: Of the scores.
    """

    reads_unwritten_slots = False

    def __init__(self, kernels: CpuOps, pools: Sequence[Tensor], num_heads: int, scale: float) -> None:
        self._kernels = kernels
        self._pools = tuple(pools)
        self._num_heads = num_heads
        self._scale = scale

    def plan(self, layout: BatchLayout) -> "NativeStepAttention":
        """Bind the step's layout."""
        return NativeStepAttention(self._kernels, self._pools, self._scale, layout)


class NativeStepAttention:
    """Attention of one step; see StepAttention."""

    def __init__(self, kernels: CpuOps, pools: Sequence[Tensor], scale: float, layout: BatchLayout) -> None:
        self._kernels = kernels
        self._pools = pools
        self._scale = scale
        self._layout = layout

    def attend(
        self, layer_index: int, heads: Tensor, rotary: RotaryTables, norms: HeadNorms | None = None
    ) -> Tensor:
        """Normalize, rotate, write K and V to the cache, then attend where the blocks lie."""
        layout, pool = self._layout, self._pools[layer_index]
        if norms is not None:
            normalize_heads(heads, pool.shape[2], norms, self._kernels.rms_norm)
        self._kernels.rotate_and_cache(heads, rotary.positions, rotary.cos_sin, layout.slot_mapping, pool)
        return self._kernels.paged_attention(
            heads, pool, layout.block_tables, layout.query_start_loc, layout.context_lens_device, self._scale
        )
