import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minivllm_kernels.attention_config import decode_config
from minivllm_kernels.decode_step import PagedContexts
from minivllm_kernels.errors import InvalidTensor
from minivllm_kernels.head_norms import HeadNorms
from minivllm_kernels.paged_decode_attention import (
    MASKED_TILES,
    num_kv_splits,
    paged_decode_attention,
    rotate_cache_and_attend,
)
from minivllm_kernels.reference import paged_decode_attention as reference
from minivllm_kernels.rms_norm import rms_norm

EDGE_LENGTHS = [1, 15, 16, 17, 31, 32, 33]
TOLERANCES = [(torch.float32, 1e-5), (torch.float16, 2e-3), (torch.bfloat16, 1.6e-2)]
HEAD_SHAPES = [(8, 4, 2), (64, 9, 3), (80, 5, 1), (96, 2, 2), (128, 8, 1), (128, 10, 2)]


def decode_args(batch):
    return (
        batch.query,
        batch.key_cache,
        batch.value_cache,
        batch.block_tables,
        batch.context_lens,
        batch.scale,
    )


@pytest.mark.parametrize(("head_dim", "num_heads", "num_kv_heads"), HEAD_SHAPES)
@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
def test_equals_the_twin_at_block_edges(
    device, paged_batch, poisoned, head_dim, num_heads, num_kv_heads, dtype, tolerance
):
    batch = paged_batch(device, EDGE_LENGTHS, heads=(num_heads, num_kv_heads), head_dim=head_dim, dtype=dtype)
    with poisoned():
        output = paged_decode_attention(*decode_args(batch))
    assert output.dtype == dtype
    torch.testing.assert_close(
        output, reference.paged_decode_attention(*decode_args(batch)), atol=tolerance, rtol=tolerance
    )


@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
def test_splits_of_long_and_short_contexts_merge(device, paged_batch, poisoned, dtype, tolerance):
    batch = paged_batch(device, [1, 64, 65, 128, 129, 520], dtype=dtype)
    assert num_kv_splits(6 * 2, batch.block_tables.shape[1] * 16) == 2
    with poisoned():
        output = paged_decode_attention(*decode_args(batch))
    torch.testing.assert_close(output.float(), batch.sdpa(), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("table_width", [16, 128])
@pytest.mark.parametrize("past", [-1, 0, 1, 15, 16, 17])
def test_long_stretches_end_where_the_context_does(device, paged_batch, poisoned, past, table_width):
    """In one split and in several, each of more tiles than are masked; behind the context there is NaN."""
    num_splits, tile_kv = num_kv_splits(2, 16 * table_width), decode_config(256, 2, 2).tile_kv
    assert (num_splits, tile_kv) == (1 if table_width == 16 else 8, 16)
    length = num_splits * (MASKED_TILES.value + 2) * tile_kv + past
    batch = paged_batch(
        device, [length, 3], heads=(2, 1), head_dim=256, dtype=torch.float16, table_width=table_width
    )
    with poisoned():
        output = paged_decode_attention(*decode_args(batch))
    torch.testing.assert_close(output.float(), batch.sdpa(), atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize("table_width", [3, 64])
def test_padding_rows_become_zeros(device, paged_batch, poisoned, table_width):
    batch = paged_batch(device, [0, 20, 0], table_width=table_width)
    with poisoned():
        output = paged_decode_attention(*decode_args(batch))
    assert not output[0].any()
    assert not output[2].any()
    assert output[1].all()


def test_reads_views_of_fused_projections_and_wide_tables(device, paged_batch):
    batch = paged_batch(device, [5, 40])
    fused = torch.cat((batch.query, torch.full_like(batch.query, float("nan"))), dim=1)
    pool = torch.stack((batch.key_cache, batch.value_cache), dim=1)
    wide_tables = torch.cat((batch.block_tables, batch.block_tables), dim=1)
    output = paged_decode_attention(
        fused[:, : batch.query.shape[1]],
        pool[:, 0],
        pool[:, 1],
        wide_tables[:, : batch.block_tables.shape[1]],
        batch.context_lens,
        batch.scale,
    )
    torch.testing.assert_close(output, paged_decode_attention(*decode_args(batch)), atol=0, rtol=0)


@pytest.mark.parametrize("table_width", [3, 64])
@pytest.mark.parametrize("order", [[2, 0, 3, 1], [3, 2, 1, 0]])
def test_the_order_of_requests_changes_no_result(device, paged_batch, poisoned, order, table_width):
    batch = paged_batch(device, [20, 33, 48, 0], table_width=table_width)
    expected = paged_decode_attention(*decode_args(batch))
    with poisoned():
        output = paged_decode_attention(
            *decode_args(batch), torch.tensor(order, dtype=torch.int32, device=device)
        )
    assert torch.equal(output, expected)


@pytest.mark.parametrize("op", [paged_decode_attention, reference.paged_decode_attention])
def test_refuses_an_order_of_another_shape_dtype_or_layout(device, paged_batch, op):
    batch = paged_batch(device, [3, 4])
    order = torch.arange(3, dtype=torch.int32, device=device)
    with pytest.raises(InvalidTensor, match=r"order has shape \(3,\), expected \(2,\)"):
        op(*decode_args(batch), order)
    with pytest.raises(InvalidTensor, match=r"order has dtype torch\.int64, expected torch\.int32"):
        op(*decode_args(batch), order[:2].long())
    with pytest.raises(InvalidTensor, match="order has stride 2"):
        op(*decode_args(batch), order[::2])


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(0, 70), min_size=1, max_size=3),
    block_size=st.sampled_from([1, 5, 16]),
    table_width=st.sampled_from([None, 72]),
)
def test_any_lengths_and_block_sizes(device, paged_batch, poisoned, lengths, block_size, table_width):
    batch = paged_batch(
        device, lengths, heads=(3, 1), head_dim=16, block_size=block_size, table_width=table_width
    )
    with poisoned():
        output = paged_decode_attention(*decode_args(batch))
    torch.testing.assert_close(
        output, reference.paged_decode_attention(*decode_args(batch)), atol=1e-5, rtol=1e-5
    )


def test_an_empty_batch_has_an_empty_result(device, paged_batch):
    batch = paged_batch(device, [3])
    output = paged_decode_attention(
        batch.query[:0],
        batch.key_cache,
        batch.value_cache,
        batch.block_tables[:0],
        batch.context_lens[:0],
        batch.scale,
    )
    assert output.shape == (0, *batch.query.shape[1:])


@given(num_rows=st.integers(0, 10_000), max_context_len=st.integers(0, 1 << 20))
def test_num_kv_splits_is_a_power_of_two_that_fits(num_rows, max_context_len):
    splits = num_kv_splits(num_rows, max_context_len)
    assert splits & (splits - 1) == 0
    assert splits == 1 or (splits * num_rows <= 1024 and splits * 256 <= max_context_len)
    assert splits <= 8 or splits * num_rows <= 256
    assert splits >= 8 or 2 * splits * num_rows > 1024 or 2 * splits * 256 > max_context_len


def test_refuses_tables_of_another_batch_size(device, paged_batch):
    batch = paged_batch(device, [3, 4])
    with pytest.raises(InvalidTensor, match=r"context_lens has shape \(2,\), expected \(1,\)"):
        paged_decode_attention(batch.query[:1], *decode_args(batch)[1:])


@pytest.mark.parametrize("scale", [0.0, -0.25, float("nan")])
def test_refuses_a_scale_that_turns_scores_around(device, paged_batch, scale):
    batch = paged_batch(device, [3, 4])
    with pytest.raises(InvalidTensor, match=f"scale is {scale}, expected a number above 0"):
        paged_decode_attention(*decode_args(batch)[:-1], scale)


@pytest.mark.parametrize(("head_dim", "num_heads", "num_kv_heads"), HEAD_SHAPES)
@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
def test_rotate_cache_and_attend_equals_the_twin(
    device, paged_batch, poisoned, head_norms, head_dim, num_heads, num_kv_heads, dtype, tolerance
):
    lengths = [0, 1, 16, 33] if head_dim != 8 else [0, 1, 129, 260]  # the latter are split
    batch = paged_batch(device, lengths, heads=(num_heads, num_kv_heads), head_dim=head_dim, dtype=dtype)
    new = torch.randn((2, len(lengths), num_kv_heads, head_dim), device=device).to(dtype)
    heads = torch.cat((batch.query, *new), dim=1)
    angles = torch.rand((300, head_dim // 2), device=device) * 6
    tables = (torch.cat((angles.cos(), angles.sin()), dim=-1), batch.key_cache, batch.value_cache)
    twin_tables = (tables[0], batch.key_cache.clone(), batch.value_cache.clone())
    norms = head_norms(head_dim, dtype)
    order = torch.tensor([2, 0, 3, 1], dtype=torch.int32, device=device)
    arguments = (PagedContexts(batch.block_tables, batch.context_lens, order), batch.scale, norms)
    before = heads.clone()
    with poisoned():
        output = rotate_cache_and_attend(heads, *tables, *arguments)
    expected = reference.rotate_cache_and_attend(heads, *twin_tables, *arguments)
    torch.testing.assert_close(output, expected, atol=tolerance, rtol=tolerance)
    # The rotation may cancel all but what a norm rounded.
    atol = 1e-6 if norms is None else 4 * tolerance
    for cache, twin in zip(tables[1:], twin_tables[1:], strict=True):
        torch.testing.assert_close(cache, twin, atol=atol, rtol=2**-7, equal_nan=True)
    assert torch.equal(heads, before)


@pytest.mark.parametrize("table_width", [8, 64])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_norms_round_where_rms_norm_does(device, paged_batch, dtype, table_width):
    """In one split and in several, of which only the last holds the newest token."""
    batch = paged_batch(device, [100, 3], heads=(5, 1), head_dim=128, dtype=dtype, table_width=table_width)
    assert num_kv_splits(2, 16 * table_width) == (1 if table_width == 8 else 4)
    heads = torch.randn((2, 7, 128), device=device).to(dtype)
    norms = HeadNorms(*torch.randn((2, 128), device=device).to(dtype).float(), eps=1e-6)
    normalized = heads.clone()
    for part, weight in ((normalized[:, :5], norms.query), (normalized[:, 5:6], norms.key)):
        part.copy_(rms_norm(part, weight.to(dtype), norms.eps))
    angles = torch.rand((100, 64), device=device) * 6
    cos_sin_cache = torch.cat((angles.cos(), angles.sin()), dim=-1)
    arguments = (PagedContexts(batch.block_tables, batch.context_lens), batch.scale)
    caches = (batch.key_cache.clone(), batch.value_cache.clone())
    expected = rotate_cache_and_attend(
        normalized, cos_sin_cache, batch.key_cache, batch.value_cache, *arguments
    )
    output = rotate_cache_and_attend(heads, cos_sin_cache, *caches, *arguments, norms)
    written = ~batch.key_cache.isnan()
    # Sums in another order change a rounding now and then.
    assert (caches[0] != batch.key_cache)[written].float().mean() < 0.01
    assert (output != expected).float().mean() < 0.05
