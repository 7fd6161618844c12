"""Twin of `minivllm_kernels.paged_decode_attention`: a decode row is a chunk of one query."""

import torch

from minivllm_kernels.decode_step import PagedContexts
from minivllm_kernels.head_norms import HeadNorms
from minivllm_kernels.reference.paged_prefill_attention import paged_prefill_attention
from minivllm_kernels.reference.rotate_and_cache import rotate_and_cache
from minivllm_kernels.tensor_checks import (
    require_order,
    require_paged_attention,
    require_scale,
    require_shape,
)


def paged_decode_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
    order: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend from the newest token of each of B requests to its paged context.

    Args:
        query: `[B, Hq, D]`.
        key_cache: `[num_blocks, Hkv, block_size, D]`; query head h reads KV head `h // (Hq // Hkv)`.
        value_cache: as `key_cache`.
        block_tables: `[B, M]` int32; entries past `ceil(context_len / block_size)` are never read.
        context_lens: `[B]` int32, tokens in the cache, the newest included; 0 marks padding: zeros.
        scale: factor on the scores, above 0; usually `D ** -0.5`.
        order: `[B]` int32, each request once; only a GPU cares.

    Returns:
        `[B, Hq, D]` in the dtype of `query`; the softmax is computed in float32.

    Raises:
        InvalidTensor: The shapes, dtypes or layouts do not fit each other.
    """
    require_paged_attention(query, key_cache, value_cache, block_tables, context_lens)
    require_scale(scale)
    batch_size = query.shape[0]
    require_shape("context_lens", context_lens, (batch_size,))
    require_order(order, batch_size)
    one_query_each = torch.arange(batch_size + 1, dtype=torch.int32, device=query.device)
    return paged_prefill_attention(
        query, key_cache, value_cache, block_tables, one_query_each, context_lens, scale
    )


def rotate_cache_and_attend(
    heads: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    contexts: PagedContexts,
    scale: float,
    norms: HeadNorms | None = None,
) -> torch.Tensor:
    """All between the q/k/v projection and the output projection of a decode step.

    The newest token of each of B requests is at position `context_len - 1`. Its query and key are normalized and
    rotated to it, its key and value are written to the cache, and its query attends to the context.

    Args:
        heads: `[B, Hq + 2 * Hkv, D]`, query, key and value heads side by side; not changed.
        cos_sin_cache: `[P, D]` float32: row p holds the cosines of D/2 angles, then their sines.
        key_cache: `[num_blocks, Hkv, block_size, D]`; written at the newest position.
        value_cache: as `key_cache`.
        contexts: of the B requests; padding gives zeros.
        scale: factor on the scores, above 0; usually `D ** -0.5`.
        norms: of the query and key heads; None leaves them as they are.

    Returns:
        `[B, Hq, D]` in the dtype of `heads`; the softmax is computed in float32.

    Raises:
        InvalidTensor: The shapes, dtypes or layouts do not fit each other.
    """
    block_tables, context_lens, order = contexts
    num_heads, block_size = heads.shape[1] - 2 * key_cache.shape[1], key_cache.shape[2]
    require_shape("context_lens", context_lens, (heads.shape[0],))
    real = context_lens.nonzero().squeeze(1)
    positions = context_lens[real].long() - 1
    block_ids = block_tables[real].gather(1, (positions // block_size)[:, None]).squeeze(1).long()
    slots = block_ids * block_size + positions % block_size
    rotated = heads[real]
    rotate_and_cache(rotated, positions, cos_sin_cache, slots, key_cache, value_cache, norms)
    query = heads[:, :num_heads].index_copy(0, real, rotated[:, :num_heads])
    return paged_decode_attention(query, key_cache, value_cache, block_tables, context_lens, scale, order)
