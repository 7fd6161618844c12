"""Captured once, ops can be replayed on new data: no launch depends on what device tensors hold."""

import pytest
import torch

from minivllm_kernels.paged_decode_attention import paged_decode_attention
from minivllm_kernels.paged_prefill_attention import paged_prefill_attention
from minivllm_kernels.reshape_and_cache import reshape_and_cache
from minivllm_kernels.rms_norm import add_rms_norm, rms_norm
from minivllm_kernels.rotary_embedding import rotary_embedding
from minivllm_kernels.silu_and_mul import silu_and_mul


def run_all(batch, slots, table):
    """One call of each op: decode attention, then a chunk, a norm and an activation on its result."""
    query = batch.query.clone()
    rotary_embedding(query[:, :4], query[:, 4:], slots, table)
    reshape_and_cache(query[:, :2], query[:, 2:4], batch.key_cache, batch.value_cache, slots)
    pool = (batch.key_cache, batch.value_cache, batch.block_tables)
    decoded = paged_decode_attention(query, *pool, batch.context_lens, batch.scale)
    chunked = paged_prefill_attention(decoded, *pool, batch.query_start_loc, batch.context_lens, batch.scale)
    weight = torch.ones(64, dtype=query.dtype, device=query.device)
    residual = decoded.flatten(0, 1).clone()
    normed = add_rms_norm(rms_norm(chunked, weight, 1e-5).flatten(0, 1), residual, weight, 1e-5)
    return query, batch.key_cache, batch.value_cache, decoded, residual, silu_and_mul(normed)


@pytest.mark.gpu
def test_a_replay_on_new_data_equals_an_eager_call(device, paged_batch):
    captured, eager, fresh = (
        paged_batch(device, lengths, heads=(6, 2), dtype=torch.float16, table_width=40)
        for lengths in ([30, 300, 40], [300, 33, 30], [300, 33, 30])
    )
    slots = torch.tensor([0, 1, 2], device=device)
    table = torch.rand((8, 64), device=device)
    expected = run_all(eager, slots, table)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = run_all(captured, slots, table)
    for field in ("query", "key_cache", "value_cache", "block_tables", "context_lens"):
        getattr(captured, field).copy_(getattr(fresh, field))
    graph.replay()
    torch.testing.assert_close(outputs, expected, atol=0, rtol=0, equal_nan=True)
    assert not outputs[3].isnan().any()
