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

from minivllm_kernels.head_norms import HeadNorms
from minivllm_runtime.attention.head_norms import normalize_heads
from minivllm_runtime.attention.rotary import RotaryTables, Rotation
from minivllm_runtime.attention.step_attention import BatchLayout

_MIN_ROWS_FOR_BATCHED_PRODUCTS = 4
"""From here on two batched products beat the fused operation for single-token rows (measured on two cores)."""


@dataclass(frozen=True, slots=True)
class PagedLayers:
    """The KV pools of all layers, seen the two ways that steps use them.

    Attributes:
        num_heads, num_kv_heads, scale: Hq, Hkv and the factor of the scores.
        slots: Of each layer, [2 · (num_blocks + 1) · Hkv · block_size, D]: one row per token and head.
        blocks: Of each layer, [2 · (num_blocks + 1) · Hkv, block_size · D]: one row per block and head.
    """

    num_heads: int
    num_kv_heads: int
    scale: float
    slots: tuple[Tensor, ...]
    blocks: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class RowGroup:
    """B rows of similar length, padded to Q query tokens and N blocks.

    Attributes:
        num_rows, num_queries: B and Q.
        tokens: [B · Q] int64, index of each padded query in the step's tokens; None if they are all of them in order.
        valid: [B · Q] bool, which of them are not padding; None if all are.
        cache_rows: [2 · B · Hkv · N] int64 into the pool seen as [2 · (num_blocks + 1) · Hkv, block_size · D]: the
            blocks of K, then those of V.
        mask: zero where a query may look, -inf elsewhere, broadcast over the scores [B, Hkv, G · Q, N · block_size];
            None if no row has a past: then query i looks at keys 0 to i.
    """

    num_rows: int
    num_queries: int
    tokens: Tensor | None
    valid: Tensor | None
    cache_rows: Tensor
    mask: Tensor | None


class TorchAttentionBackend:
    """Plans steps over the caches of all layers.

    Args:
        pools: KV cache of each layer, [2, num_blocks + 1, Hkv, block_size, D].
        num_heads: Hq.
        scale: Of the scores.
    """

    reads_unwritten_slots = True

    def __init__(self, pools: Sequence[Tensor], num_heads: int, scale: float) -> None:
        _, pool_blocks, self._num_kv_heads, self._block_size, head_dim = pools[0].shape
        self._group_size = num_heads // self._num_kv_heads
        self._dtype = pools[0].dtype
        self._value_offset = pool_blocks * self._num_kv_heads
        self._layers = PagedLayers(
            num_heads=num_heads,
            num_kv_heads=self._num_kv_heads,
            scale=scale,
            slots=tuple(pool.view(-1, head_dim) for pool in pools),
            blocks=tuple(pool.view(-1, self._block_size * head_dim) for pool in pools),
        )

    def plan(self, layout: BatchLayout) -> "TorchStepAttention":
        """Sort the rows into groups and compute where each group reads and what it masks."""
        buckets: dict[tuple[int, int, bool], list[int]] = defaultdict(list)
        for row, (query_len, context_len) in enumerate(
            zip(layout.query_lens, layout.context_lens, strict=True)
        ):
            num_blocks = -(-context_len // self._block_size)
            has_past = context_len > query_len
            buckets[(query_len - 1).bit_length(), (num_blocks - 1).bit_length(), has_past].append(row)
        groups = tuple(self._plan_group(layout, rows) for rows in buckets.values())
        return TorchStepAttention(self._layers, self._cache_slots(layout), groups)

    def _cache_slots(self, layout: BatchLayout) -> Tensor:
        """[T, 2 · Hkv]: where each token's K and V heads go in the pool seen as [… , D]."""
        blocks = (layout.slot_mapping // self._block_size)[:, None]
        offsets = (layout.slot_mapping % self._block_size)[:, None]
        key_slots = (
            blocks * self._num_kv_heads + torch.arange(self._num_kv_heads)
        ) * self._block_size + offsets
        return torch.cat((key_slots, key_slots + self._value_offset * self._block_size), dim=1)

    def _plan_group(self, layout: BatchLayout, rows: list[int]) -> RowGroup:
        row_index = torch.tensor(rows)
        query_lens = torch.tensor([layout.query_lens[row] for row in rows])
        context_lens = torch.tensor([layout.context_lens[row] for row in rows])
        num_queries = int(query_lens.max())
        # Padding repeats a row's last token; what it computes is dropped.
        offsets = torch.arange(num_queries)
        query_offsets = torch.minimum(offsets, (query_lens - 1)[:, None])
        is_padded = bool((query_lens != num_queries).any())
        covers_step = not is_padded and len(rows) == len(layout.query_lens)
        starts = layout.query_start_loc[row_index].long()
        return RowGroup(
            num_rows=len(rows),
            num_queries=num_queries,
            tokens=None if covers_step else (starts[:, None] + query_offsets).flatten(),
            valid=(offsets < query_lens[:, None]).flatten() if is_padded else None,
            cache_rows=self._cache_rows(layout.block_tables[row_index], context_lens),
            mask=self._mask((context_lens - query_lens)[:, None] + query_offsets, context_lens),
        )

    def _cache_rows(self, block_tables: Tensor, context_lens: Tensor) -> Tensor:
        """The blocks of each row, for each head. Past its end a row repeats its last block, and the mask hides it."""
        num_blocks = -(-int(context_lens.max()) // self._block_size)
        last_column = (context_lens - 1)[:, None] // self._block_size
        columns = torch.minimum(torch.arange(num_blocks), last_column)
        blocks = block_tables.long().gather(1, columns)
        heads = torch.arange(self._num_kv_heads)[:, None]
        key_rows = (blocks[:, None, :] * self._num_kv_heads + heads).flatten()
        return torch.cat((key_rows, key_rows + self._value_offset))

    def _mask(self, positions: Tensor, context_lens: Tensor) -> Tensor | None:
        """Additive mask for query positions [B, Q], in the cache's dtype; see RowGroup."""
        num_queries = positions.shape[1]
        num_keys = -(-int(context_lens.max()) // self._block_size) * self._block_size
        if num_queries > 1 and bool((positions[:, 0] == 0).all()):
            return None
        visible = torch.arange(num_keys) <= positions[:, :, None]
        mask = torch.zeros(visible.shape, dtype=self._dtype).masked_fill_(~visible, float("-inf"))
        return mask.repeat(1, self._group_size, 1).unsqueeze(1) if num_queries > 1 else mask.unsqueeze(1)


class TorchStepAttention:
    """Attention of one planned step; see StepAttention."""

    def __init__(self, layers: PagedLayers, cache_slots: Tensor, groups: tuple[RowGroup, ...]) -> None:
        self._layers = layers
        self._cache_slots = cache_slots
        self._groups = groups
        self._rotation: Rotation | None = None

    def attend(
        self, layer_index: int, heads: Tensor, rotary: RotaryTables, norms: HeadNorms | None = None
    ) -> Tensor:
        """Normalize, rotate, write the tokens' K and V, then attend with their queries, group by group."""
        if norms is not None:
            normalize_heads(heads, self._layers.num_kv_heads, norms)
        if self._rotation is None:
            self._rotation = Rotation.of(rotary, heads.dtype)
        self._rotation.apply(heads[:, : self._layers.num_heads + self._layers.num_kv_heads])
        query = heads[:, : self._layers.num_heads]
        self._layers.slots[layer_index][self._cache_slots] = heads[:, self._layers.num_heads :]
        if self._groups[0].tokens is None:
            return self._attend_group(self._groups[0], layer_index, query)
        output = torch.empty(query.shape, dtype=query.dtype)
        for group in self._groups:
            attended = self._attend_group(group, layer_index, query[group.tokens])
            tokens = group.tokens
            if group.valid is not None and tokens is not None:
                tokens, attended = tokens[group.valid], attended[group.valid]
            output[tokens] = attended
        return output

    def _attend_group(self, group: RowGroup, layer_index: int, query: Tensor) -> Tensor:
        """Attend query [B · Q, Hq, D] of one group over its gathered context: [B · Q, Hq, D]."""
        num_kv_heads, head_dim = self._layers.num_kv_heads, query.shape[-1]
        gathered = self._layers.blocks[layer_index].index_select(0, group.cache_rows)
        keys, values = gathered.view(2, group.num_rows, num_kv_heads, -1, head_dim).unbind(0)
        heads = query.reshape(group.num_rows, group.num_queries, num_kv_heads, -1, head_dim).permute(
            0, 2, 3, 1, 4
        )
        attended = self._attend_heads(heads, keys, values, group.mask)
        return attended.permute(0, 3, 1, 2, 4).reshape(query.shape)

    def _attend_heads(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Attend query [B, Hkv, G, Q, D] over keys and values [B, Hkv, L, D]: [B, Hkv, G, Q, D]."""
        num_rows, num_kv_heads, group_size, num_queries, _ = query.shape
        if mask is None:
            keys, values = (
                each.flatten(0, 1)[:, None].expand(-1, group_size, -1, -1) for each in (keys, values)
            )
            attended = functional.scaled_dot_product_attention(
                query.flatten(0, 1), keys, values, is_causal=True, scale=self._layers.scale
            )
            return attended.view(query.shape)
        # The G query heads that share a KV head become further queries of it.
        packed = query.flatten(2, 3)
        if num_queries > 1 or num_rows < _MIN_ROWS_FOR_BATCHED_PRODUCTS:
            return functional.scaled_dot_product_attention(
                packed, keys, values, attn_mask=mask, scale=self._layers.scale
            ).view(query.shape)
        bias = mask.expand(-1, num_kv_heads, -1, -1).flatten(0, 1)
        packed, keys, values = packed.flatten(0, 1), keys.flatten(0, 1), values.flatten(0, 1)
        scores = torch.baddbmm(bias, packed, keys.transpose(1, 2), alpha=self._layers.scale)
        return torch.bmm(torch.softmax(scores, dim=-1), values).view(query.shape)
