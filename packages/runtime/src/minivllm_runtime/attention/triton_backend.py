"""Paged attention from Triton kernels, for CUDA devices (or the Triton interpreter in tests)."""

from collections.abc import Sequence

from torch import Tensor

from minivllm_runtime.attention.step_attention import BatchLayout, KVCache


class TritonAttentionBackend:
    """Hands each step to the paged kernels; there is nothing to plan but which kernel serves it."""

    def __init__(self, caches: Sequence[KVCache], scale: float) -> None:
        self._caches = caches
        self._scale = scale

    def plan(self, layout: BatchLayout) -> "TritonStepAttention":
        """Bind the step's layout."""
        return TritonStepAttention(self._caches, self._scale, layout)


class TritonStepAttention:
    """Attention of one step; see StepAttention."""

    def __init__(self, caches: Sequence[KVCache], scale: float, layout: BatchLayout) -> None:
        self._caches = caches
        self._scale = scale
        self._layout = layout
        self._max_query_len = max(layout.query_lens)

    def attend(self, layer_index: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Write key and value [T, Hkv, D] to the cache, then attend query [T, Hq, D] in one launch."""
        from minivllm_kernels.paged_decode_attention import paged_decode_attention
        from minivllm_kernels.paged_prefill_attention import paged_prefill_attention
        from minivllm_kernels.reshape_and_cache import reshape_and_cache

        cache, layout = self._caches[layer_index], self._layout
        reshape_and_cache(key, value, cache.key, cache.value, layout.slot_mapping)
        if self._max_query_len == 1:
            return paged_decode_attention(
                query, cache.key, cache.value, layout.block_tables, layout.context_lens_device, self._scale
            )
        return paged_prefill_attention(
            query,
            cache.key,
            cache.value,
            layout.block_tables,
            layout.query_start_loc,
            layout.context_lens_device,
            self._scale,
            self._max_query_len,
        )
