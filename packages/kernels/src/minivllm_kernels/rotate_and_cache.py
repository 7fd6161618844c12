# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Between the q/k/v projection and attention, in one pass: normalize and rotate; write keys and values to the cache."""

import torch
import triton
import triton.language as tl

from minivllm_kernels.early_launch import early_launch, let_next_start, wait_for_inputs
from minivllm_kernels.head_norms import HeadNorms, query_and_key_norm
from minivllm_kernels.rms_norm import scale_row
from minivllm_kernels.tensor_checks import require_dense_rows, require_fused_heads, require_head_norms

_TILE_TOKENS = 4


def rotate_and_cache(
    heads: torch.Tensor,
    positions: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    norms: HeadNorms | None = None,
) -> None:
    """Rotate the queries of T tokens in place, and write their rotated keys and their values to the paged cache.

    The rotation is that of `rotary_embedding`, computed in float32 and rounded once (RoPE; Su et al., 2021); a norm
    before it is that of `rms_norm`. Where two tokens have the same slot, as padding may, either of them is written.

    Args:
        heads: `[T, Hq + 2 * Hkv, D]`: query, key and value heads of each token side by side, as a fused
            projection leaves them. The query heads are overwritten, the others are not.
        positions: `[T]` int64, each from 0 to P - 1.
        cos_sin_cache: `[P, D]` float32, contiguous: row p holds the cosines of D/2 angles, then their sines.
        slot_mapping: `[T]` int64; slot = block_id * block_size + offset.
        key_cache: `[num_blocks, Hkv, block_size, D]`, dtype of `heads`, written.
        value_cache: as `key_cache`, of the same strides, written.
        norms: of the query and key heads, before they are rotated; None leaves them as they are.

    Raises:
        InvalidTensor: The shapes, dtypes or layouts do not fit each other.
    """
    require_fused_heads(heads, positions, cos_sin_cache, slot_mapping, key_cache, value_cache)
    for name, tensor in (("heads", heads), ("cos_sin_cache", cos_sin_cache)):
        require_dense_rows(name, tensor)
    require_head_norms(norms, heads.shape[2])
    num_tokens, num_heads, head_dim = heads.shape
    _, num_kv_heads, block_size, _ = key_cache.shape
    group_size = num_heads // num_kv_heads - 2
    _rotate_and_cache_kernel[(triton.cdiv(num_tokens, _TILE_TOKENS), num_kv_heads)](
        heads,
        *query_and_key_norm(norms),
        positions,
        cos_sin_cache,
        slot_mapping,
        key_cache,
        value_cache,
        num_tokens,
        heads.stride(),
        key_cache.stride(),
        BLOCK_SIZE=block_size,
        GROUP_SIZE=group_size,
        HALF_DIM=head_dim // 2,
        TILE_TOKENS=_TILE_TOKENS,
        **early_launch(heads.device),
    )


@triton.jit(do_not_specialize=["num_tokens"])
def _rotate_and_cache_kernel(
    heads_ptr,
    query_norm,
    key_norm,
    positions_ptr,
    cos_sin_ptr,
    slot_mapping_ptr,
    key_cache_ptr,
    value_cache_ptr,
    num_tokens,
    heads_strides,
    cache_strides,
    BLOCK_SIZE: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
    HALF_DIM: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One program serves one KV head of TILE_TOKENS tokens, and the query heads that share it."""
    kv_head = tl.program_id(1)
    num_kv_heads = tl.num_programs(1)
    dims = tl.arange(0, triton.next_power_of_2(HALF_DIM))[None, :]
    first_token = tl.program_id(0) * TILE_TOKENS
    let_next_start(EARLY)
    wait_for_inputs(EARLY)

    group: tl.constexpr = triton.next_power_of_2(GROUP_SIZE)
    rows = tl.arange(0, TILE_TOKENS * group)[:, None]
    # 64 bits: token × stride and block id × stride pass 2^31 in large batches and pools.
    tokens = (first_token + rows // group).to(tl.int64)
    mask = (tokens < num_tokens) & (rows % group < GROUP_SIZE) & (dims < HALF_DIM)
    head = kv_head * GROUP_SIZE + rows % group
    query_ptr = heads_ptr + tokens * heads_strides[0] + head * heads_strides[1] + dims
    first, second = _load_rotated(
        query_ptr, query_norm, positions_ptr + tokens, cos_sin_ptr, dims, mask, HALF_DIM
    )
    tl.store(query_ptr, first, mask=mask)
    tl.store(query_ptr + HALF_DIM, second, mask=mask)

    tokens = (first_token + tl.arange(0, TILE_TOKENS)[:, None]).to(tl.int64)
    mask = (tokens < num_tokens) & (dims < HALF_DIM)
    head = num_kv_heads * GROUP_SIZE + kv_head
    key_ptr = heads_ptr + tokens * heads_strides[0] + head * heads_strides[1] + dims
    value_ptr = key_ptr + num_kv_heads * heads_strides[1]
    slots = tl.load(slot_mapping_ptr + tokens, mask=tokens < num_tokens, other=0)
    target = slots // BLOCK_SIZE * cache_strides[0] + slots % BLOCK_SIZE * cache_strides[2]
    target += kv_head * cache_strides[1] + dims
    first, second = _load_rotated(
        key_ptr, key_norm, positions_ptr + tokens, cos_sin_ptr, dims, mask, HALF_DIM
    )
    tl.store(key_cache_ptr + target, first, mask=mask)
    tl.store(key_cache_ptr + target + HALF_DIM, second, mask=mask)
    tl.store(value_cache_ptr + target, tl.load(value_ptr, mask=mask), mask=mask)
    tl.store(value_cache_ptr + target + HALF_DIM, tl.load(value_ptr + HALF_DIM, mask=mask), mask=mask)


@triton.jit
def _load_rotated(head_ptr, norm, position_ptr, cos_sin_ptr, dims, mask, HALF_DIM: tl.constexpr):
    """The halves of heads `[rows, HALF_DIM]`, normalized if there is a norm, rotated by their tokens' angles."""
    position = tl.load(position_ptr, mask=tl.max(mask.to(tl.int32), axis=1, keep_dims=True) > 0, other=0)
    angle_ptr = cos_sin_ptr + position * (2 * HALF_DIM) + dims
    cos = tl.load(angle_ptr, mask=mask, other=0.0)
    sin = tl.load(angle_ptr + HALF_DIM, mask=mask, other=0.0)
    first = tl.load(head_ptr, mask=mask, other=0.0)
    second = tl.load(head_ptr + HALF_DIM, mask=mask, other=0.0)
    if norm is not None:
        first, second = _normalize(first, second, norm, dims, HALF_DIM)
    wide_first, wide_second = first.to(tl.float32), second.to(tl.float32)
    rotated_first = wide_first * cos - wide_second * sin
    rotated_second = wide_second * cos + wide_first * sin
    return rotated_first.to(first.dtype), rotated_second.to(first.dtype)


@triton.jit
def _normalize(first, second, norm, dims, HALF_DIM: tl.constexpr):
    """The halves of heads `[rows, HALF_DIM]`, divided by the heads' root mean squares and scaled."""
    weight_ptr, eps = norm
    first_weight = tl.load(weight_ptr + dims, mask=dims < HALF_DIM, other=0.0)
    second_weight = tl.load(weight_ptr + HALF_DIM + dims, mask=dims < HALF_DIM, other=0.0)
    wide_first, wide_second = first.to(tl.float32), second.to(tl.float32)
    squares = wide_first * wide_first + wide_second * wide_second
    inverse_rms = tl.rsqrt(tl.sum(squares, axis=1, keep_dims=True) / (2 * HALF_DIM) + eps)
    return scale_row(first, inverse_rms, first_weight), scale_row(second, inverse_rms, second_weight)
