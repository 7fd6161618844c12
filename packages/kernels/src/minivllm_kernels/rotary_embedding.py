# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Rotary position embedding of queries and keys, in place."""

import torch
import triton
import triton.language as tl

from minivllm_kernels.tensor_checks import require_dense_rows, require_rotary


def rotary_embedding(
    query: torch.Tensor, key: torch.Tensor, positions: torch.Tensor, cos_sin_cache: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate queries and keys by the angles of their positions, in place (RoPE; Su et al., 2021).

    Half-split layout: dimension i is paired with i + D/2, as in GPT-NeoX and Hugging Face's Llama. The
    rotation is computed in float32 and rounded once. `query` and `key` may be views of a fused projection.

    Args:
        query: `[T, Hq, D]`, overwritten.
        key: `[T, Hkv, D]`, dtype of `query`, overwritten.
        positions: `[T]` int64, each from 0 to P - 1.
        cos_sin_cache: `[P, D]` float32, contiguous: row p holds the cosines of D/2 angles, then their sines.

    Returns:
        `(query, key)`: the tensors that were passed in.

    Raises:
        InvalidTensor: The shapes, dtypes or layouts do not fit each other.
    """
    require_rotary(query, key, positions, cos_sin_cache)
    for name, tensor in (("query", query), ("key", key), ("cos_sin_cache", cos_sin_cache)):
        require_dense_rows(name, tensor)
    num_tokens, num_query_heads, head_dim = query.shape
    _rotate_token_kernel[(num_tokens,)](
        query,
        key,
        positions,
        cos_sin_cache,
        query.stride(),
        key.stride(),
        cos_sin_cache.stride(0),
        NUM_QUERY_HEADS=num_query_heads,
        NUM_KV_HEADS=key.shape[1],
        HALF_DIM=head_dim // 2,
    )
    return query, key


@triton.jit
def _rotate_token_kernel(
    query_ptr,
    key_ptr,
    positions_ptr,
    cos_sin_ptr,
    query_strides,
    key_strides,
    stride_cos_sin,
    NUM_QUERY_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HALF_DIM: tl.constexpr,
):
    """One program rotates all heads of one token: they share their angles."""
    token = tl.program_id(0).to(tl.int64)
    dims = tl.arange(0, triton.next_power_of_2(HALF_DIM))
    cos_ptr = cos_sin_ptr + tl.load(positions_ptr + token) * stride_cos_sin + dims
    cos = tl.load(cos_ptr, mask=dims < HALF_DIM, other=0.0)
    sin = tl.load(cos_ptr + HALF_DIM, mask=dims < HALF_DIM, other=0.0)
    _rotate_heads(query_ptr + token * query_strides[0], query_strides[1], cos, sin, NUM_QUERY_HEADS, HALF_DIM)
    _rotate_heads(key_ptr + token * key_strides[0], key_strides[1], cos, sin, NUM_KV_HEADS, HALF_DIM)


@triton.jit
def _rotate_heads(heads_ptr, stride_head, cos, sin, NUM_HEADS: tl.constexpr, HALF_DIM: tl.constexpr):
    """Rotate `[NUM_HEADS, 2 * HALF_DIM]` in place; `cos` and `sin` are padded to a power of two."""
    heads = tl.arange(0, triton.next_power_of_2(NUM_HEADS))[:, None]
    dims = tl.arange(0, cos.shape[0])[None, :]
    mask = (heads < NUM_HEADS) & (dims < HALF_DIM)
    first_ptr = heads_ptr + heads * stride_head + dims
    first = tl.load(first_ptr, mask=mask)
    second = tl.load(first_ptr + HALF_DIM, mask=mask)
    wide_first, wide_second = first.to(tl.float32), second.to(tl.float32)
    rotated_first = wide_first * cos[None, :] - wide_second * sin[None, :]
    rotated_second = wide_second * cos[None, :] + wide_first * sin[None, :]
    tl.store(first_ptr, rotated_first.to(first.dtype), mask=mask)
    tl.store(first_ptr + HALF_DIM, rotated_second.to(second.dtype), mask=mask)
