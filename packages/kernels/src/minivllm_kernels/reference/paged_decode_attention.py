"""Twin of `minivllm_kernels.paged_decode_attention`: a decode row is a chunk of one query."""

import torch

from minivllm_kernels.reference.paged_prefill_attention import paged_prefill_attention
from minivllm_kernels.tensor_checks import require_paged_attention, require_shape


def paged_decode_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Attend from the newest token of each of B requests to its paged context.

    Args:
        query: `[B, Hq, D]`.
        key_cache: `[num_blocks, Hkv, block_size, D]`; query head h reads KV head `h // (Hq // Hkv)`.
        value_cache: as `key_cache`.
        block_tables: `[B, M]` int32; entries past `ceil(context_len / block_size)` are never read.
        context_lens: `[B]` int32, tokens in the cache, the newest included; 0 marks padding: zeros.
        scale: factor on the scores, usually `D ** -0.5`.

    Returns:
        `[B, Hq, D]` in the dtype of `query`; the softmax is computed in float32.

    Raises:
        InvalidTensor: The shapes, dtypes or layouts do not fit each other.
    """
    require_paged_attention(query, key_cache, value_cache, block_tables, context_lens)
    batch_size = query.shape[0]
    require_shape("context_lens", context_lens, (batch_size,))
    one_query_each = torch.arange(batch_size + 1, dtype=torch.int32, device=query.device)
    return paged_prefill_attention(
        query, key_cache, value_cache, block_tables, one_query_each, context_lens, scale, max_query_len=1
    )
