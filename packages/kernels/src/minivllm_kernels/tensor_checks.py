"""What the ops require of their arguments, checked on the host without reading a tensor's data."""

import torch

from minivllm_kernels.errors import InvalidTensor
from minivllm_kernels.head_norms import HeadNorms
from minivllm_kernels.sampling_table import SamplingTable

MAX_SMALL_BATCH = 256
"""Rows that `small_batch_linear` takes; with more, cuBLAS is faster."""
MAX_SPLITS = 32
"""Parts of a product; with more, offsets of a large vocabulary's products would pass 32 bits."""
GROUP_ROWS = 8
"""Rows of gate, then of up, in a gated weight: in the result of a wgmma a thread holds rows r and r + 8."""


def require_shape(name: str, tensor: torch.Tensor, expected: tuple[int, ...]) -> None:
    """Raise `InvalidTensor` unless `tensor` has exactly the shape `expected`."""
    if tensor.shape != expected:
        raise InvalidTensor(f"{name} has shape {tuple(tensor.shape)}, expected {expected}")


def require_ndim(name: str, tensor: torch.Tensor, ndim: int) -> None:
    """Raise `InvalidTensor` unless `tensor` has `ndim` dimensions."""
    if tensor.ndim != ndim:
        raise InvalidTensor(f"{name} has shape {tuple(tensor.shape)}, expected {ndim} dimensions")


def require_dtype(name: str, tensor: torch.Tensor, *allowed: torch.dtype) -> None:
    """Raise `InvalidTensor` unless the dtype of `tensor` is one of `allowed`."""
    if tensor.dtype not in allowed:
        raise InvalidTensor(f"{name} has dtype {tensor.dtype}, expected {' or '.join(map(str, allowed))}")


def require_dense_rows(name: str, tensor: torch.Tensor) -> None:
    """Raise `InvalidTensor` unless the last dimension of `tensor` is contiguous; outer strides are free."""
    if tensor.stride(-1) != 1:
        raise InvalidTensor(f"{name} has stride {tensor.stride(-1)} in its last dimension, expected 1")


def require_kv_cache(key_cache: torch.Tensor, value_cache: torch.Tensor) -> None:
    """Raise `InvalidTensor` unless both are `[num_blocks, Hkv, block_size, D]` of one dtype and layout."""
    require_ndim("key_cache", key_cache, 4)
    require_shape("value_cache", value_cache, tuple(key_cache.shape))
    require_dtype("value_cache", value_cache, key_cache.dtype)
    require_dense_rows("key_cache", key_cache)
    if value_cache.stride() != key_cache.stride():
        raise InvalidTensor(f"value_cache has strides {value_cache.stride()}, expected {key_cache.stride()}")


def require_paged_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
) -> None:
    """Raise `InvalidTensor` unless the arguments that prefill and decode attention share fit each other."""
    require_kv_cache(key_cache, value_cache)
    require_ndim("query", query, 3)
    require_dtype("query", query, key_cache.dtype)
    require_dense_rows("query", query)
    _, num_kv_heads, _, head_dim = key_cache.shape
    if query.shape[2] != head_dim:
        raise InvalidTensor(f"query has head_dim {query.shape[2]}, the cache has {head_dim}")
    if query.shape[1] % num_kv_heads:
        raise InvalidTensor(f"query has {query.shape[1]} heads, not a multiple of {num_kv_heads} KV heads")
    require_ndim("block_tables", block_tables, 2)
    require_dtype("block_tables", block_tables, torch.int32)
    require_dense_rows("block_tables", block_tables)
    require_shape("context_lens", context_lens, (block_tables.shape[0],))
    require_dtype("context_lens", context_lens, torch.int32)


def require_order(order: torch.Tensor | None, batch_size: int) -> None:
    """Raise `InvalidTensor` unless `order` is `[batch_size]` int32, contiguous, or None."""
    if order is not None:
        require_shape("order", order, (batch_size,))
        require_dtype("order", order, torch.int32)
        require_dense_rows("order", order)


def require_scale(scale: float) -> None:
    """Raise `InvalidTensor` unless the largest score stays the largest when it is scaled."""
    if not scale > 0:
        raise InvalidTensor(f"scale is {scale}, expected a number above 0")


def require_query_start_loc(query_start_loc: torch.Tensor, num_requests: int) -> None:
    """Raise `InvalidTensor` unless `query_start_loc` is `[num_requests + 1]` int32."""
    require_shape("query_start_loc", query_start_loc, (num_requests + 1,))
    require_dtype("query_start_loc", query_start_loc, torch.int32)


def require_rotary(
    query: torch.Tensor, key: torch.Tensor, positions: torch.Tensor, cos_sin_cache: torch.Tensor
) -> None:
    """Raise `InvalidTensor` unless the arguments of the rotary embedding fit each other."""
    require_ndim("query", query, 3)
    require_ndim("key", key, 3)
    num_tokens, _, head_dim = query.shape
    require_shape("key", key, (num_tokens, key.shape[1], head_dim))
    require_dtype("key", key, query.dtype)
    require_shape("positions", positions, (num_tokens,))
    require_dtype("positions", positions, torch.int64)
    require_cos_sin(cos_sin_cache, head_dim)


def require_cos_sin(cos_sin_cache: torch.Tensor, head_dim: int) -> None:
    """Raise `InvalidTensor` unless `cos_sin_cache` is `[P, head_dim]` float32."""
    require_shape("cos_sin_cache", cos_sin_cache, (cos_sin_cache.shape[0], head_dim))
    require_dtype("cos_sin_cache", cos_sin_cache, torch.float32)
    require_dense_rows("cos_sin_cache", cos_sin_cache)


def require_head_norms(norms: HeadNorms | None, head_dim: int) -> None:
    """Raise `InvalidTensor` unless the weights of `norms` are `[head_dim]` float32, contiguous."""
    if norms is not None:
        for name, weight in (("norms.query", norms.query), ("norms.key", norms.key)):
            require_shape(name, weight, (head_dim,))
            require_dtype(name, weight, torch.float32)
            require_dense_rows(name, weight)


def require_residual(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> None:
    """Raise `InvalidTensor` unless `residual` is `[T, H]` and `x` alike, or `[S, T, H]` float32, its parts."""
    if x.ndim == 3:
        require_dtype("x", x, torch.float32)
        if x.shape[0] == 0:
            raise InvalidTensor(f"x has shape {tuple(x.shape)}, expected at least 1 part")
    else:
        require_ndim("x", x, 2)
        require_dtype("residual", residual, x.dtype)
    require_shape("residual", residual, tuple(x.shape[-2:]))
    require_shape("weight", weight, (residual.shape[1],))
    require_dtype("weight", weight, residual.dtype)


def require_gate_up(x: torch.Tensor, group_size: int | None) -> None:
    """Raise `InvalidTensor` unless `x` is `[T, 2I]` and `group_size` divides I."""
    require_ndim("x", x, 2)
    if x.shape[1] % 2 or x.shape[1] == 0:
        raise InvalidTensor(f"x has rows of {x.shape[1]} elements, expected an even number above 0")
    if group_size is not None and (group_size < 1 or x.shape[1] // 2 % group_size):
        raise InvalidTensor(f"group_size is {group_size}, expected a divisor of {x.shape[1] // 2}")


def require_gate_up_groups(name: str, tensor: torch.Tensor) -> None:
    """Raise `InvalidTensor` unless the rows of `tensor` are whole groups of gate and up."""
    if tensor.shape[0] % (2 * GROUP_ROWS):
        raise InvalidTensor(f"{name} has {tensor.shape[0]} rows, expected a multiple of {2 * GROUP_ROWS}")


def require_fused_heads(
    heads: torch.Tensor,
    positions: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
) -> None:
    """Raise `InvalidTensor` unless `heads` is `[T, Hq + 2 * Hkv, D]` and the rest fits it."""
    require_kv_cache(key_cache, value_cache)
    require_ndim("heads", heads, 3)
    require_dtype("heads", heads, key_cache.dtype)
    num_tokens, num_heads, head_dim = heads.shape
    num_kv_heads = key_cache.shape[1]
    if num_heads % num_kv_heads or num_heads <= 2 * num_kv_heads:
        raise InvalidTensor(
            f"heads has {num_heads} heads, expected a multiple of {num_kv_heads} KV heads above twice that"
        )
    if key_cache.shape[3] != head_dim:
        raise InvalidTensor(f"heads has head_dim {head_dim}, the cache has {key_cache.shape[3]}")
    require_shape("positions", positions, (num_tokens,))
    require_dtype("positions", positions, torch.int64)
    require_shape("slot_mapping", slot_mapping, (num_tokens,))
    require_dtype("slot_mapping", slot_mapping, torch.int64)
    require_cos_sin(cos_sin_cache, head_dim)


def require_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *, num_rows: int | None = None
) -> None:
    """Raise `InvalidTensor` unless `x` `[T, K]` can be multiplied by `weight` `[N, K]`; `num_rows` fixes T."""
    require_ndim("weight", weight, 2)
    require_shape("x", x, (x.shape[0] if num_rows is None else num_rows, weight.shape[1]))
    require_dtype("weight", weight, x.dtype)
    if not weight.is_contiguous():
        raise InvalidTensor(f"weight has strides {weight.stride()}, expected it contiguous")
    if bias is not None:
        require_shape("bias", bias, (weight.shape[0],))
        require_dtype("bias", bias, x.dtype)


def require_small_batch(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    """Raise `InvalidTensor` unless `x` has at most `MAX_SMALL_BATCH` rows of half precision, and the rest fits it."""
    require_linear(x, weight, bias)
    require_dtype("x", x, torch.float16, torch.bfloat16)
    require_dense_rows("x", x)
    if x.shape[0] > MAX_SMALL_BATCH:
        raise InvalidTensor(f"x has {x.shape[0]} rows, expected at most {MAX_SMALL_BATCH}")
    for name, tensor in (("x", x), ("weight", weight)):
        if tensor.stride(0) % 8 or tensor.stride(0) < tensor.shape[1] or tensor.data_ptr() % 16:
            raise InvalidTensor(f"{name} has rows that overlap, or do not begin at multiples of 16 bytes")


def require_splits(num_splits: int) -> None:
    """Raise `InvalidTensor` unless `num_splits` is from 1 to `MAX_SPLITS`."""
    if not 1 <= num_splits <= MAX_SPLITS:
        raise InvalidTensor(f"num_splits is {num_splits}, expected 1 to {MAX_SPLITS}")


def require_request_tables(
    slots: torch.Tensor, positions: torch.Tensor, token_ids: torch.Tensor, block_tables: torch.Tensor
) -> None:
    """Raise `InvalidTensor` unless the rows' slots and positions fit the requests' tables."""
    _require_places(slots, positions, token_ids)
    require_shape("block_tables", block_tables, (token_ids.shape[0], block_tables.shape[-1]))
    require_dtype("block_tables", block_tables, torch.int32)
    if not block_tables.is_contiguous():
        raise InvalidTensor(f"block_tables has strides {block_tables.stride()}, expected it contiguous")


def require_sample(
    logits: torch.Tensor,
    token_ids: torch.Tensor,
    slots: torch.Tensor,
    positions: torch.Tensor,
    table: SamplingTable,
) -> None:
    """Raise `InvalidTensor` unless each row of the logits has a slot and a position, and each slot its parameters."""
    require_ndim("logits", logits, 2)
    require_dtype("logits", logits, torch.float32, torch.float16, torch.bfloat16)
    require_dense_rows("logits", logits)
    require_shape("slots", slots, (logits.shape[0],))
    _require_places(slots, positions, token_ids)
    parameters = (("floats", table.floats, 3, torch.float32), ("integers", table.integers, 4, torch.int64))
    for name, tensor, width, dtype in parameters:
        require_shape(f"table.{name}", tensor, (token_ids.shape[0], width))
        require_dtype(f"table.{name}", tensor, dtype)
        if not tensor.is_contiguous():
            raise InvalidTensor(f"table.{name} has strides {tensor.stride()}, expected it contiguous")


def _require_places(slots: torch.Tensor, positions: torch.Tensor, token_ids: torch.Tensor) -> None:
    require_ndim("slots", slots, 1)
    require_shape("positions", positions, tuple(slots.shape))
    require_ndim("token_ids", token_ids, 2)
    require_dense_rows("token_ids", token_ids)
    for name, tensor in (("slots", slots), ("token_ids", token_ids)):
        require_dtype(name, tensor, torch.int64)
    require_dtype("positions", positions, torch.int64, torch.int32)
