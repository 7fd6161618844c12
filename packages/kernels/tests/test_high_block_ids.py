"""Offsets into a pool pass 2^31 elements in a few GB: block id × stride must be computed in 64 bits."""

import pytest
import torch

from minivllm_kernels.paged_decode_attention import paged_decode_attention
from minivllm_kernels.paged_prefill_attention import paged_prefill_attention
from minivllm_kernels.reshape_and_cache import reshape_and_cache

NUM_BLOCKS, NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM = 140_000, 8, 16, 128
CONTEXT_LEN, QUERY_LEN = 40, 3


def run(device, caches, block_ids, key, value, query):
    """Write one request's keys and values to its blocks, then attend in both ways."""
    slots = torch.tensor(
        [block_ids[i // BLOCK_SIZE] * BLOCK_SIZE + i % BLOCK_SIZE for i in range(CONTEXT_LEN)]
    )
    reshape_and_cache(key, value, *caches, slots.to(device))
    tables = torch.tensor([block_ids], dtype=torch.int32, device=device)
    lengths = torch.tensor([CONTEXT_LEN], dtype=torch.int32, device=device)
    starts = torch.tensor([0, QUERY_LEN], dtype=torch.int32, device=device)
    scale = HEAD_DIM**-0.5
    return (
        paged_prefill_attention(query, *caches, tables, starts, lengths, scale),
        paged_decode_attention(query[-1:], *caches, tables, lengths, scale),
    )


@pytest.mark.gpu
def test_the_last_blocks_of_a_large_pool_equal_the_first(device):
    shape = (NUM_BLOCKS, NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM)
    caches = [torch.empty(shape, dtype=torch.float16, device=device) for _ in range(2)]
    key, value = torch.randn((2, CONTEXT_LEN, NUM_KV_HEADS, HEAD_DIM), device=device).half()
    query = torch.randn((QUERY_LEN, 2 * NUM_KV_HEADS, HEAD_DIM), device=device).half()
    low = run(device, caches, [0, 1, 2], key, value, query)
    for cache in caches:
        cache[:3] = float("nan")
    high = run(device, caches, [139_997, 139_998, 139_999], key, value, query)
    assert torch.equal(low[0], high[0])
    assert torch.equal(low[1], high[1])
    assert torch.equal(caches[0][-3, :, 0], key[0])
