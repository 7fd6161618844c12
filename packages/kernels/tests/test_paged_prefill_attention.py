import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minivllm_kernels.errors import InvalidTensor
from minivllm_kernels.paged_prefill_attention import locate_tiles, paged_prefill_attention
from minivllm_kernels.reference import paged_prefill_attention as reference

CHUNK_STARTS = [0, 15, 16, 17, 40, 0, 3]
CHUNK_LENGTHS = [17, 1, 16, 15, 1, 1, 33]
CONTEXT_LENGTHS = [start + length for start, length in zip(CHUNK_STARTS, CHUNK_LENGTHS, strict=True)]
TOLERANCES = [(torch.float32, 1e-5), (torch.float16, 2e-3), (torch.bfloat16, 1.6e-2)]
HEAD_SHAPES = [(8, 4, 2), (64, 9, 3), (80, 5, 1), (96, 2, 2), (128, 8, 1)]


def prefill_args(batch):
    return (
        batch.query,
        batch.key_cache,
        batch.value_cache,
        batch.block_tables,
        batch.query_start_loc,
        batch.context_lens,
        batch.scale,
    )


def tiles_of(batch, max_query_len=None):
    num_tokens, num_heads, _ = batch.query.shape
    longest = batch.max_query_len if max_query_len is None else max_query_len
    return locate_tiles(batch.query_start_loc, batch.key_cache, num_heads, num_tokens, longest)


def test_layers_may_share_located_tiles(device, paged_batch, poisoned):
    batch = paged_batch(device, CONTEXT_LENGTHS, CHUNK_LENGTHS, heads=(8, 4), head_dim=16)
    with poisoned():
        tiles = tiles_of(batch)
        output = paged_prefill_attention(*prefill_args(batch), tiles)
    assert sorted(set(tiles.requests.tolist())) == [-1, *range(len(CHUNK_LENGTHS))]
    assert torch.equal(output, paged_prefill_attention(*prefill_args(batch)))


def test_refuses_tiles_of_another_batch(device, paged_batch):
    tiles = tiles_of(paged_batch(device, [90, 80], [90, 80], heads=(2, 2)))
    batch = paged_batch(device, [9], heads=(2, 2))
    with pytest.raises(InvalidTensor, match=r"tiles.requests has shape \(4,\), expected \(1,\)"):
        paged_prefill_attention(*prefill_args(batch), tiles)


@pytest.mark.parametrize(("head_dim", "num_heads", "num_kv_heads"), HEAD_SHAPES)
@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
def test_equals_the_twin_on_chunks_that_start_anywhere(
    device, paged_batch, poisoned, head_dim, num_heads, num_kv_heads, dtype, tolerance
):
    batch = paged_batch(
        device,
        CONTEXT_LENGTHS,
        CHUNK_LENGTHS,
        heads=(num_heads, num_kv_heads),
        head_dim=head_dim,
        dtype=dtype,
    )
    with poisoned():
        output = paged_prefill_attention(*prefill_args(batch))
    assert output.dtype == dtype
    torch.testing.assert_close(
        output, reference.paged_prefill_attention(*prefill_args(batch)), atol=tolerance, rtol=tolerance
    )


def test_a_chunk_of_several_tiles(device, paged_batch, poisoned):
    batch = paged_batch(device, [150], [100], heads=(8, 1), head_dim=16)
    with poisoned():
        output = paged_prefill_attention(*prefill_args(batch))
    torch.testing.assert_close(output, batch.sdpa(), atol=1e-5, rtol=1e-5)


def test_decode_rows_alone_use_the_small_tile(device, paged_batch, poisoned):
    batch = paged_batch(device, [1, 16, 33], heads=(6, 2))
    with poisoned():
        output = paged_prefill_attention(*prefill_args(batch), tiles_of(batch))
    assert tiles_of(batch).config.tile_rows == 16
    torch.testing.assert_close(output, batch.sdpa(), atol=1e-5, rtol=1e-5)


def test_more_requests_than_one_step_of_the_search(device, paged_batch, poisoned):
    query_lens = [1, *[0] * 130, 2, 3]
    batch = paged_batch(device, [5, *[0] * 130, 2, 7], query_lens, heads=(1, 1), head_dim=16)
    with poisoned():
        output = paged_prefill_attention(*prefill_args(batch))
    torch.testing.assert_close(output, batch.sdpa(), atol=1e-5, rtol=1e-5)


def test_padding_requests_become_zeros(device, paged_batch, poisoned):
    batch = paged_batch(device, [0, 20, 0], [3, 4, 2])
    with poisoned():
        output = paged_prefill_attention(*prefill_args(batch))
    assert not output[:3].any()
    assert not output[7:].any()
    assert output[3:7].all()


@pytest.mark.parametrize("max_query_len", [2, 3, 1000])
def test_the_size_of_tiles_changes_no_result(device, paged_batch, max_query_len):
    batch = paged_batch(device, [20, 9], [2, 1])
    output = paged_prefill_attention(*prefill_args(batch), tiles_of(batch, max_query_len))
    torch.testing.assert_close(output, batch.sdpa(), atol=1e-5, rtol=1e-5)


def test_reads_views_of_a_fused_projection(device, paged_batch):
    batch = paged_batch(device, [5, 40], [5, 3])
    fused = torch.cat((batch.query, torch.full_like(batch.query, float("nan"))), dim=1)
    output = paged_prefill_attention(fused[:, : batch.query.shape[1]], *prefill_args(batch)[1:])
    torch.testing.assert_close(output, paged_prefill_attention(*prefill_args(batch)), atol=0, rtol=0)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    chunks=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=4),
    block_size=st.sampled_from([1, 5, 16]),
)
def test_any_mix_of_chunks(device, paged_batch, poisoned, chunks, block_size):
    chunks = [*chunks, (2, 1)]
    batch = paged_batch(
        device,
        [start + length for start, length in chunks],
        [length for _, length in chunks],
        head_dim=16,
        block_size=block_size,
    )
    with poisoned():
        output = paged_prefill_attention(*prefill_args(batch))
    torch.testing.assert_close(
        output, reference.paged_prefill_attention(*prefill_args(batch)), atol=1e-5, rtol=1e-5
    )


def test_refuses_starts_of_another_batch_size(device, paged_batch):
    batch = paged_batch(device, [3, 4], [3, 4])
    arguments = list(prefill_args(batch))
    arguments[4] = batch.query_start_loc[:-1]
    with pytest.raises(InvalidTensor, match=r"query_start_loc has shape \(2,\), expected \(3,\)"):
        paged_prefill_attention(*arguments)
