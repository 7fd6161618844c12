"""Twin of `minivllm_kernels.paged_prefill_attention`: gather K and V per request, then dense attention."""

import torch

from minivllm_kernels.attention_config import PrefillTiles
from minivllm_kernels.tensor_checks import require_paged_attention, require_query_start_loc, require_scale


def paged_prefill_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    query_start_loc: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
    tiles: PrefillTiles | None = None,  # noqa: ARG001 - sizes the launch of the Triton op
) -> torch.Tensor:
    """Attend from the chunks of B requests, packed one after another, to their paged contexts.

    The keys and values of the chunks are in the cache already. Query t of request b sits at position
    `context_lens[b] - query_len[b] + t` and sees the positions up to its own.

    Args:
        query: `[T, Hq, D]`.
        key_cache: `[num_blocks, Hkv, block_size, D]`; query head h reads KV head `h // (Hq // Hkv)`.
        value_cache: as `key_cache`.
        block_tables: `[B, M]` int32; entries past `ceil(context_len / block_size)` are never read.
        query_start_loc: `[B + 1]` int32, from 0 up to T: the first row of each request, then the end.
        context_lens: `[B]` int32, tokens in the cache, the chunk included; 0 marks padding: zeros.
        scale: factor on the scores, above 0; usually `D ** -0.5`.
        tiles: not read.

    Returns:
        `[T, Hq, D]` in the dtype of `query`; the softmax is computed in float32.

    Raises:
        InvalidTensor: The shapes, dtypes or layouts do not fit each other.
    """
    require_paged_attention(query, key_cache, value_cache, block_tables, context_lens)
    require_scale(scale)
    require_query_start_loc(query_start_loc, block_tables.shape[0])
    output = torch.zeros_like(query, memory_format=torch.contiguous_format)
    starts = query_start_loc.tolist()
    for request, context_len in enumerate(context_lens.tolist()):
        if context_len == 0:
            continue
        rows = slice(starts[request], starts[request + 1])
        keys = gather_context(key_cache, block_tables[request], context_len)
        values = gather_context(value_cache, block_tables[request], context_len)
        output[rows] = causal_attention(query[rows], keys, values, scale)
    return output


def gather_context(cache: torch.Tensor, block_table: torch.Tensor, context_len: int) -> torch.Tensor:
    """Collect one request's keys or values in token order.

    Args:
        cache: `[num_blocks, Hkv, block_size, D]`.
        block_table: `[M]`.
        context_len: tokens to collect.

    Returns:
        `[context_len, Hkv, D]`.
    """
    _, num_kv_heads, block_size, head_dim = cache.shape
    num_used = -(-context_len // block_size)
    blocks = cache[block_table[:num_used].long()]
    return blocks.transpose(1, 2).reshape(-1, num_kv_heads, head_dim)[:context_len]


def causal_attention(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float
) -> torch.Tensor:
    """Attend from the last Q of L positions to all positions up to each one's own.

    Args:
        query: `[Q, Hq, D]`.
        keys: `[L, Hkv, D]`.
        values: `[L, Hkv, D]`.
        scale: factor on the scores.

    Returns:
        `[Q, Hq, D]` in the dtype of `query`, computed in float32.
    """
    (query_len, num_heads, _), (context_len, num_kv_heads, _) = query.shape, keys.shape
    keys = keys.repeat_interleave(num_heads // num_kv_heads, dim=1)
    values = values.repeat_interleave(num_heads // num_kv_heads, dim=1)
    scores = torch.einsum("qhd,khd->hqk", query.float(), keys.float()) * scale
    positions = torch.arange(context_len, device=query.device)
    visible = positions <= positions[context_len - query_len :, None]
    weights = scores.masked_fill(~visible, float("-inf")).softmax(dim=-1)
    return torch.einsum("hqk,khd->qhd", weights, values.float()).to(query.dtype)
