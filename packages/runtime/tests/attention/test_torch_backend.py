"""The CPU's paged attention against the dense twins of the kernels."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minivllm_kernels.reference.paged_prefill_attention import paged_prefill_attention
from minivllm_kernels.reference.reshape_and_cache import reshape_and_cache
from minivllm_kernels.reference.rotary_embedding import rotary_embedding
from minivllm_runtime.attention.rotary import RotaryTables
from minivllm_runtime.attention.step_attention import BatchLayout
from minivllm_runtime.attention.torch_backend import TorchAttentionBackend

BLOCK_SIZE = 16


def random_step(rows, *, num_heads=6, num_kv_heads=2, head_dim=16, dtype=torch.float32, seed=0):
    """Caches with a random past, a layout with tables in random order, and the step's query, key and value.

    `rows` holds (earlier tokens, tokens of this step). Slots that nobody wrote hold the zeros they are cleared to.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator).to(dtype)

    tables_needed = [-(-(past + new) // BLOCK_SIZE) for past, new in rows]
    num_blocks = sum(tables_needed) + 2
    order = torch.randperm(num_blocks, generator=generator).tolist()
    tables = torch.full((len(rows), max(tables_needed) + 1), 10**6, dtype=torch.int32)
    for row, needed in enumerate(tables_needed):
        tables[row, :needed] = torch.tensor([order.pop() for _ in range(needed)])
    pool = torch.zeros(2, num_blocks + 1, num_kv_heads, BLOCK_SIZE, head_dim, dtype=dtype)

    def slots(row, start, end):
        return [int(tables[row, p // BLOCK_SIZE]) * BLOCK_SIZE + p % BLOCK_SIZE for p in range(start, end)]

    past_slots = [slot for row, (past, _) in enumerate(rows) for slot in slots(row, 0, past)]
    if past_slots:
        past = (normal(len(past_slots), num_kv_heads, head_dim) for _ in range(2))
        reshape_and_cache(*past, *pool, torch.tensor(past_slots))
    new_slots = [slot for row, (past, new) in enumerate(rows) for slot in slots(row, past, past + new)]
    query_lens = [new for _, new in rows]
    context_lens = [past + new for past, new in rows]
    layout = BatchLayout(
        query_lens=query_lens,
        context_lens=context_lens,
        query_start_loc=torch.tensor([0, *torch.tensor(query_lens).cumsum(0).tolist()], dtype=torch.int32),
        context_lens_device=torch.tensor(context_lens, dtype=torch.int32),
        block_tables=tables,
        slot_mapping=torch.tensor(new_slots),
    )
    return pool, layout, normal(sum(query_lens), num_heads + 2 * num_kv_heads, head_dim)


def expected(pool, layout, heads):
    twin, num_kv_heads = pool.clone(), pool.shape[2]
    query, key, value = heads.clone().split(
        (heads.shape[1] - 2 * num_kv_heads, num_kv_heads, num_kv_heads), dim=1
    )
    tables = rotary_of(layout, heads.shape[2])
    rotary_embedding(query, key, tables.positions, tables.cos_sin)
    reshape_and_cache(key, value, *twin, layout.slot_mapping)
    return paged_prefill_attention(
        query,
        *twin,
        layout.block_tables,
        layout.query_start_loc,
        layout.context_lens_device,
        0.25,
    )


def rotary_of(layout, head_dim):
    """Tables of 128 positions, and the position of each token of the step."""
    positions = [
        position
        for new, context in zip(layout.query_lens, layout.context_lens, strict=True)
        for position in range(context - new, context)
    ]
    angles = torch.outer(torch.arange(128.0), 0.1 ** torch.linspace(0, 3, head_dim // 2))
    return RotaryTables(torch.tensor(positions), torch.cat((angles.cos(), angles.sin()), dim=-1))


def attend(pool, layout, heads, norms=None):
    num_heads = heads.shape[1] - 2 * pool.shape[2]
    planned = TorchAttentionBackend([pool], num_heads, 0.25).plan(layout)
    return planned.attend(0, heads.clone(), rotary_of(layout, heads.shape[2]), norms)


@given(
    st.lists(st.tuples(st.integers(0, 70), st.integers(1, 40)), min_size=1, max_size=9),
    st.sampled_from([(4, 4), (6, 2), (9, 3), (8, 1)]),
    st.integers(0, 100),
)
@settings(max_examples=60)
def test_any_mix_of_prefill_chunks_and_decodes(rows, heads, seed):
    step = random_step(rows, num_heads=heads[0], num_kv_heads=heads[1], seed=seed)
    torch.testing.assert_close(attend(*step), expected(*step), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("num_rows", [1, 3, 4, 12])
def test_decodes_around_block_borders(num_rows):
    lengths = [0, 14, 15, 16, 30, 31, 32, 1, 2, 47, 48, 49][:num_rows]
    step = random_step([(length, 1) for length in lengths])
    torch.testing.assert_close(attend(*step), expected(*step), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2), (torch.float16, 4e-3)]
)
def test_dtypes(dtype, tolerance):
    step = random_step([(20, 1), (33, 1), (0, 17), (16, 16), (5, 1), (40, 1)], dtype=dtype)
    actual = attend(*step)
    assert actual.dtype == dtype
    torch.testing.assert_close(actual, expected(*step), rtol=tolerance, atol=tolerance)


def test_writes_only_the_slots_of_the_step():
    pool, layout, heads = random_step([(3, 2), (17, 1)])
    before = pool.clone()
    attend(pool, layout, heads)
    for old, new in zip(before, pool, strict=True):
        changed = (new != old).any(dim=(1, 3)).flatten().nonzero().flatten().tolist()
        assert changed == sorted(layout.slot_mapping.tolist())


def test_the_number_of_operations_does_not_grow_with_the_number_of_requests():
    def count_operations(num_rows):
        pool, layout, heads = random_step([(40, 1)] * num_rows)
        planned = TorchAttentionBackend([pool], heads.shape[1] - 2 * pool.shape[2], 0.25).plan(layout)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            planned.attend(0, heads, rotary_of(layout, heads.shape[2]))
        return sum(event.count for event in profile.key_averages())

    assert count_operations(64) == count_operations(8)
