import pytest
import torch

from minivllm_kernels.errors import InvalidTensor, KernelError
from minivllm_kernels.head_norms import HeadNorms
from minivllm_kernels.tensor_checks import (
    require_dense_rows,
    require_dtype,
    require_gate_up,
    require_head_norms,
    require_kv_cache,
    require_ndim,
    require_paged_attention,
    require_query_start_loc,
    require_rotary,
    require_shape,
)


def meta(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


CACHE = meta(4, 2, 16, 64)
QUERY = meta(3, 4, 64)
TABLES = meta(3, 5, dtype=torch.int32)
LENGTHS = meta(3, dtype=torch.int32)
POSITIONS = meta(3, dtype=torch.int64)
TABLE = meta(9, 64)


@pytest.mark.parametrize(
    ("check", "arguments", "message"),
    [
        (require_shape, ("x", meta(2, 3), (3, 2)), r"x has shape \(2, 3\), expected \(3, 2\)"),
        (require_ndim, ("x", meta(2, 3), 3), r"x has shape \(2, 3\), expected 3 dimensions"),
        (
            require_dtype,
            ("x", meta(1), torch.int32, torch.int64),
            r"x has dtype torch\.float32, expected torch\.int32 or torch\.int64",
        ),
        (require_dense_rows, ("x", meta(2, 3).T), "x has stride 3 in its last dimension, expected 1"),
        (require_kv_cache, (CACHE, meta(4, 2, 16, 32)), "value_cache has shape"),
        (require_kv_cache, (CACHE, CACHE.half()), "value_cache has dtype"),
        (require_kv_cache, (CACHE, meta(4, 16, 2, 64).transpose(1, 2)), "value_cache has strides"),
        (
            require_paged_attention,
            (meta(3, 4, 32), CACHE, CACHE, TABLES, LENGTHS),
            "head_dim 32, the cache has 64",
        ),
        (
            require_paged_attention,
            (meta(3, 3, 64), CACHE, CACHE, TABLES, LENGTHS),
            "query has 3 heads, not a multiple of 2 KV heads",
        ),
        (require_paged_attention, (QUERY, CACHE, CACHE, TABLES.long(), LENGTHS), "block_tables has dtype"),
        (require_paged_attention, (QUERY, CACHE, CACHE, TABLES, LENGTHS[:2]), "context_lens has shape"),
        (require_query_start_loc, (LENGTHS, 3), r"query_start_loc has shape \(3,\), expected \(4,\)"),
        (require_rotary, (QUERY, QUERY.half(), POSITIONS, TABLE), "key has dtype"),
        (require_rotary, (QUERY, QUERY, POSITIONS.int(), TABLE), "positions has dtype"),
        (require_rotary, (QUERY, QUERY, POSITIONS, TABLE.half()), "cos_sin_cache has dtype"),
        (
            require_head_norms,
            (HeadNorms(TABLE[0, :32], TABLE[0], 1e-6), 64),
            r"norms\.query has shape \(32,\)",
        ),
        (require_head_norms, (HeadNorms(TABLE[0], TABLE[0].half(), 1e-6), 64), r"norms\.key has dtype"),
        (require_head_norms, (HeadNorms(TABLE[0], meta(64, 2)[:, 0], 1e-6), 64), r"norms\.key has stride 2"),
        (require_gate_up, (meta(2, 5), None), "x has rows of 5 elements, expected an even number above 0"),
        (require_gate_up, (meta(2, 0), None), "x has rows of 0 elements, expected an even number above 0"),
        (require_gate_up, (meta(2, 6), 2), "group_size is 2, expected a divisor of 3"),
    ],
)
def test_a_misfit_is_named(check, arguments, message):
    with pytest.raises(InvalidTensor, match=message) as caught:
        check(*arguments)
    assert isinstance(caught.value, KernelError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("check", "arguments"),
    [
        (require_paged_attention, (QUERY, CACHE, CACHE, TABLES, LENGTHS)),
        (require_rotary, (QUERY, meta(3, 1, 64), POSITIONS, TABLE)),
        (require_head_norms, (HeadNorms(TABLE[0], TABLE[1], 1e-6), 64)),
        (require_head_norms, (None, 64)),
        (require_gate_up, (meta(2, 6), None)),
        (require_gate_up, (meta(2, 12), 3)),
    ],
)
def test_what_fits_passes(check, arguments):
    assert check(*arguments) is None
