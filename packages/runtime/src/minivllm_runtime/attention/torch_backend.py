"""Paged attention from PyTorch operations, for CPUs.

Rows of a step are put into groups of similar query and context length (within a factor of two), each group is padded
to its longest row, and every layer then spends one gather and one attention per group. The number of groups grows
with the logarithm of the lengths, not with the number of requests.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from minivllm_runtime.attention.step_attention import BatchLayout, KVCache

_MIN_ROWS_FOR_BATCHED_PRODUCTS = 4
"""From here on two batched products beat the fused operation for single-token rows (measured on two cores)."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """B rows of similar length, padded to Q query tokens and N blocks.

    Attributes:
        tokens: [B · Q] int64, index of each padded query in the step's tokens; None if they are all of them in order.
        valid: [B · Q] bool, which of them are not padding; None if all are.
        cache_rows: [B · Hkv · N] int64 into the cache seen as [(num_blocks + 1) · Hkv, block_size · D].
        mask: [B, 1, Q or 1, N · block_size], zero where a query may look and -inf elsewhere; None if the context
            fills its blocks.
        num_rows, num_queries: B and Q.
    """

    tokens: Tensor | None
    valid: Tensor | None
    cache_rows: Tensor
    mask: Tensor
    num_rows: int
    num_queries: int


class TorchAttentionBackend:
    """Plans steps over the caches of all layers."""

    def __init__(self, caches: Sequence[KVCache], scale: float) -> None:
        self._caches = caches
        self._scale = scale
        self._num_kv_heads = caches[0].key.shape[1]
        self._dtype = caches[0].key.dtype

    def plan(self, layout: BatchLayout) -> "TorchStepAttention":
        """Sort the rows into groups and compute where each group reads and what it masks."""
        block_size = self._caches[0].block_size
        buckets: dict[tuple[int, int], list[int]] = defaultdict(list)
        for row, (query_len, context_len) in enumerate(
            zip(layout.query_lens, layout.context_lens, strict=True)
        ):
            num_blocks = -(-context_len // block_size)
            buckets[(query_len - 1).bit_length(), (num_blocks - 1).bit_length()].append(row)
        groups = tuple(self._plan_group(layout, rows) for rows in buckets.values())
        return TorchStepAttention(self._caches, self._scale, self._cache_slots(layout, block_size), groups)

    def _cache_slots(self, layout: BatchLayout, block_size: int) -> Tensor:
        """[T · Hkv] rows of the cache seen as [(num_blocks + 1) · Hkv · block_size, D], token-major."""
        blocks, offsets = layout.slot_mapping // block_size, layout.slot_mapping % block_size
        heads = torch.arange(self._num_kv_heads)
        return (((blocks[:, None] * self._num_kv_heads) + heads) * block_size + offsets[:, None]).flatten()

    def _plan_group(self, layout: BatchLayout, rows: list[int]) -> RowGroup:
        block_size = self._caches[0].block_size
        query_lens = torch.tensor([layout.query_lens[row] for row in rows])
        context_lens = torch.tensor([layout.context_lens[row] for row in rows])
        num_queries, longest = int(query_lens.max()), int(context_lens.max())
        num_blocks = -(-longest // block_size)

        row_index = torch.tensor(rows)
        offsets = torch.arange(num_queries)
        last = (query_lens - 1)[:, None]
        tokens = layout.query_start_loc[row_index].long()[:, None] + torch.minimum(offsets, last)
        positions = (context_lens - query_lens)[:, None] + torch.minimum(offsets, last)
        visible = torch.arange(num_blocks * block_size) <= positions[:, :, None]
        mask = torch.zeros(visible.shape, dtype=self._dtype).masked_fill_(~visible, float("-inf"))

        # Entries past a row's own blocks repeat its last block: any written block will do, the mask hides it.
        own_last = (context_lens - 1)[:, None] // block_size
        columns = torch.minimum(torch.arange(num_blocks), own_last)
        blocks = layout.block_tables[row_index].long().gather(1, columns)
        heads = torch.arange(self._num_kv_heads)[:, None]
        cache_rows = (blocks[:, None, :] * self._num_kv_heads + heads).flatten()

        padded = bool((query_lens != num_queries).any())
        covers_step = not padded and len(rows) == len(layout.query_lens)
        return RowGroup(
            tokens=None if covers_step else tokens.flatten(),
            valid=(offsets <= last).flatten() if padded else None,
            cache_rows=cache_rows,
            mask=mask.unsqueeze(1),
            num_rows=len(rows),
            num_queries=num_queries,
        )


class TorchStepAttention:
    """Attention of one planned step; see StepAttention."""

    def __init__(
        self, caches: Sequence[KVCache], scale: float, cache_slots: Tensor, groups: tuple[RowGroup, ...]
    ) -> None:
        self._caches = caches
        self._scale = scale
        self._cache_slots = cache_slots
        self._groups = groups

    def attend(self, layer_index: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Write key and value [T, Hkv, D] to the cache, then attend query [T, Hq, D]."""
        cache = self._caches[layer_index]
        for pool, new in ((cache.key, key), (cache.value, value)):
            pool.view(-1, pool.shape[-1])[self._cache_slots] = new.reshape(-1, pool.shape[-1])
        if self._groups[0].tokens is None:
            return self._attend_group(self._groups[0], cache, query)
        output = torch.empty_like(query, memory_format=torch.contiguous_format)
        for group in self._groups:
            attended = self._attend_group(group, cache, query[group.tokens])
            tokens = group.tokens
            if group.valid is not None and tokens is not None:
                tokens, attended = tokens[group.valid], attended[group.valid]
            output[tokens] = attended
        return output

    def _attend_group(self, group: RowGroup, cache: KVCache, query: Tensor) -> Tensor:
        """Attend query [B · Q, Hq, D] of one group over its gathered context: [B · Q, Hq, D]."""
        num_kv_heads, head_dim = cache.key.shape[1], cache.key.shape[3]
        keys, values = (
            pool.view(-1, cache.block_size * head_dim)
            .index_select(0, group.cache_rows)
            .view(group.num_rows, num_kv_heads, -1, head_dim)
            for pool in (cache.key, cache.value)
        )
        # The G query heads that share a KV head become further queries of it: [B, Hkv, G · Q, D].
        grouped = query.reshape(group.num_rows, group.num_queries, num_kv_heads, -1, head_dim)
        if group.num_queries == 1:
            packed = grouped.view(group.num_rows, num_kv_heads, -1, head_dim)
            attended = self._attend_single(packed, keys, values, group.mask)
            return attended.reshape(query.shape)
        group_size = grouped.shape[3]
        packed = grouped.permute(0, 2, 3, 1, 4).reshape(group.num_rows, num_kv_heads, -1, head_dim)
        mask = group.mask.repeat(1, 1, group_size, 1)
        attended = functional.scaled_dot_product_attention(
            packed, keys, values, attn_mask=mask, scale=self._scale
        )
        unpacked = attended.view(group.num_rows, num_kv_heads, group_size, group.num_queries, head_dim)
        return unpacked.permute(0, 3, 1, 2, 4).reshape(query.shape)

    def _attend_single(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """One token per row: query [B, Hkv, G, D] over keys and values [B, Hkv, L, D]."""
        if query.shape[0] < _MIN_ROWS_FOR_BATCHED_PRODUCTS:
            return functional.scaled_dot_product_attention(
                query, keys, values, attn_mask=mask, scale=self._scale
            )
        shape = query.shape
        query, keys, values = query.flatten(0, 1), keys.flatten(0, 1), values.flatten(0, 1)
        bias = mask.expand(-1, shape[1], -1, -1).flatten(0, 1)
        scores = torch.baddbmm(bias, query, keys.transpose(1, 2), alpha=self._scale)
        return torch.bmm(torch.softmax(scores, dim=-1), values).view(shape)
