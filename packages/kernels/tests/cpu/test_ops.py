"""The C kernels against their twins, computed in float32 from the same bfloat16 numbers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minivllm_kernels.cpu.ops import pack_weight
from minivllm_kernels.errors import InvalidTensor
from minivllm_kernels.reference.paged_prefill_attention import paged_prefill_attention
from minivllm_kernels.reference.reshape_and_cache import reshape_and_cache
from minivllm_kernels.reference.rms_norm import rms_norm
from minivllm_kernels.reference.rotary_embedding import rotary_embedding
from minivllm_kernels.reference.silu_and_mul import silu_and_mul

ROUNDING = 3e-3
"""Relative error of a result rounded to bfloat16, a little above 2⁻⁹."""


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def relative_error(actual, expected):
    assert actual.dtype == torch.bfloat16
    assert actual.shape == expected.shape
    return float((actual.double() - expected.double()).norm() / expected.double().norm())


@pytest.mark.parametrize("num_rows", [*range(1, 26), 191, 192, 193, 400])
@pytest.mark.parametrize(("num_outputs", "num_inputs"), [(32, 2), (31, 64), (33, 66), (1, 576), (100, 130)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_linear(ops, num_rows, num_outputs, num_inputs, has_bias):
    x, weight = normal(num_rows, num_inputs), normal(num_outputs, num_inputs, seed=1)
    bias = normal(num_outputs, seed=2) if has_bias else None
    expected = x.float() @ weight.float().T + (bias.float() if has_bias else 0)
    assert relative_error(ops.linear(x, pack_weight(weight, bias)), expected) < ROUNDING


def test_linear_refuses_what_it_cannot_compute(ops):
    packed = pack_weight(normal(32, 64), None)
    with pytest.raises(InvalidTensor, match="float32"):
        ops.linear(torch.zeros(2, 64), packed)
    with pytest.raises(InvalidTensor, match="contiguous"):
        ops.linear(normal(64, 2).T, packed)
    with pytest.raises(InvalidTensor, match="63 inputs, the weight has 64"):
        ops.linear(normal(2, 63), packed)
    with pytest.raises(InvalidTensor, match="even"):
        pack_weight(normal(32, 63), None)


@pytest.mark.parametrize("row_size", [2, 16, 17, 64, 80, 576, 2048])
@pytest.mark.parametrize("num_rows", [1, 3, 50])
def test_norms(ops, num_rows, row_size):
    x, residual, weight = (
        normal(num_rows, row_size),
        normal(num_rows, row_size, seed=1),
        normal(row_size).float(),
    )
    assert relative_error(ops.rms_norm(x, weight, 1e-5), rms_norm(x.float(), weight, 1e-5)) < ROUNDING
    total = residual + x
    normed = ops.add_rms_norm(x, residual, weight, 1e-5)
    assert torch.equal(residual, total)
    assert relative_error(normed, rms_norm(total.float(), weight, 1e-5)) < ROUNDING


def test_norms_refuse_what_they_cannot_compute(ops):
    x, weight = normal(2, 8), torch.ones(8)
    for wrong in (weight.bfloat16(), torch.ones(9), torch.ones(16)[::2]):
        with pytest.raises(InvalidTensor, match="weight"):
            ops.rms_norm(x, wrong, 1e-5)
        with pytest.raises(InvalidTensor, match="weight"):
            ops.add_rms_norm(x, normal(2, 8), wrong, 1e-5)
    for wrong in (normal(2, 9), normal(1, 8), torch.zeros(2, 8), normal(8, 2).T):
        with pytest.raises(InvalidTensor, match="residual"):
            ops.add_rms_norm(x, wrong, weight, 1e-5)
    with pytest.raises(InvalidTensor, match="two halves"):
        ops.silu_and_mul(normal(2, 9))


@pytest.mark.parametrize("size", [1, 15, 16, 17, 1536])
@pytest.mark.parametrize("factor", [1.0, 300.0])
def test_silu_and_mul(ops, size, factor):
    x = normal(7, 2 * size) * factor
    actual = ops.silu_and_mul(x)
    assert actual.isfinite().all()
    assert relative_error(actual, silu_and_mul(x.float())) < ROUNDING


@pytest.mark.parametrize("head_dim", [2, 16, 64, 80, 128])
@pytest.mark.parametrize("block_size", [1, 8, 16])
def test_rotate_and_cache(ops, head_dim, block_size):
    num_tokens, num_heads, num_kv_heads = 9, 6, 2
    heads = normal(num_tokens, num_heads + 2 * num_kv_heads, head_dim)
    cache = torch.full((2, 20, num_kv_heads, block_size, head_dim), torch.nan, dtype=torch.bfloat16)
    positions = torch.randint(0, 50, (num_tokens,))
    angles = torch.rand(50, head_dim // 2) * 6
    cos_sin = torch.cat((angles.cos(), angles.sin()), dim=-1)
    slots = torch.randperm(20 * block_size)[:num_tokens]
    query, key, value = (
        each.float().contiguous() for each in heads.split((num_heads, num_kv_heads, num_kv_heads), dim=1)
    )
    rotary_embedding(query, key, positions, cos_sin)
    expected = torch.full(cache.shape, torch.nan)
    reshape_and_cache(key, value, *expected, slots)
    ops.rotate_and_cache(heads, positions, cos_sin, slots, cache)
    assert relative_error(heads[:, :num_heads], query) < ROUNDING
    torch.testing.assert_close(cache.float(), expected, rtol=8e-3, atol=8e-3, equal_nan=True)


def random_context(rows, num_kv_heads, head_dim, block_size, seed):
    """A pool whose unwritten slots are NaN, and tables in random order whose unused entries are far outside."""
    needed = [-(-(past + new) // block_size) for past, new in rows]
    order = torch.randperm(sum(needed) + 2, generator=torch.Generator().manual_seed(seed)).tolist()
    cache = normal(2, len(order), num_kv_heads, block_size, head_dim, seed=seed)
    tables = torch.full((len(rows), max(needed) + 1), 10**6, dtype=torch.int32)
    for row, ((past, new), count) in enumerate(zip(rows, needed, strict=True)):
        blocks = [order.pop() for _ in range(count)]
        tables[row, :count] = torch.tensor(blocks)
        if (past + new) % block_size:
            cache[:, blocks[-1], :, (past + new) % block_size :] = torch.nan
    return cache, tables


@given(
    rows=st.lists(st.tuples(st.integers(0, 90), st.integers(1, 70)), min_size=1, max_size=6),
    heads=st.sampled_from([(4, 4), (9, 3), (8, 1), (5, 1), (48, 1), (2, 2)]),
    head_dim=st.sampled_from([16, 48, 64, 80, 128, 256]),
    block_size=st.sampled_from([1, 4, 16, 24, 64]),
    seed=st.integers(0, 99),
)
@settings(max_examples=100)
def test_paged_attention(ops, rows, heads, head_dim, block_size, seed):
    num_heads, num_kv_heads = heads
    cache, tables = random_context(rows, num_kv_heads, head_dim, block_size, seed)
    starts = torch.tensor([0, *(new for _, new in rows)]).cumsum(0).int()
    context_lens = torch.tensor([past + new for past, new in rows], dtype=torch.int32)
    step = normal(int(starts[-1]), num_heads + 2 * num_kv_heads, head_dim, seed=seed + 1)
    scale = head_dim**-0.5
    actual = ops.paged_attention(step, cache, tables, starts, context_lens, scale)
    expected = paged_prefill_attention(
        step[:, :num_heads].float(), *cache.float(), tables, starts, context_lens, scale
    )
    assert relative_error(actual, expected) < 4e-3


def right_step(head_dim=16, num_heads=4, num_kv_heads=2):
    """Arguments of `rotate_and_cache` and of `paged_attention`, by name, for two requests of one token."""
    heads = normal(2, num_heads + 2 * num_kv_heads, head_dim)
    cache = normal(2, 3, num_kv_heads, 4, head_dim)
    rotate = {
        "heads": heads,
        "positions": torch.zeros(2, dtype=torch.int64),
        "cos_sin": torch.ones(9, head_dim),
        "slot_mapping": torch.tensor([0, 4]),
        "cache": cache,
    }
    attend = {
        "heads": heads,
        "cache": cache,
        "block_tables": torch.tensor([[0], [1]], dtype=torch.int32),
        "query_start_loc": torch.tensor([0, 1, 2], dtype=torch.int32),
        "context_lens": torch.tensor([1, 1], dtype=torch.int32),
        "scale": 1.0,
    }
    return rotate, attend


WRONG = {
    "of another dtype": lambda tensor: tensor.to(torch.float16),
    "of one more row": lambda tensor: torch.cat((tensor, tensor[:1])),
    "with gaps": lambda tensor: tensor.repeat_interleave(2, dim=-1)[..., ::2],
}
ANY_LENGTH = {("cos_sin", "of one more row")}


@pytest.mark.parametrize("change", WRONG)
@pytest.mark.parametrize("name", ["heads", "positions", "cos_sin", "slot_mapping", "cache"])
def test_rotate_and_cache_refuses_what_it_cannot_compute(ops, name, change):
    rotate, _ = right_step()
    ops.rotate_and_cache(**rotate)
    if (name, change) not in ANY_LENGTH:
        with pytest.raises(InvalidTensor):
            ops.rotate_and_cache(**rotate | {name: WRONG[change](rotate[name])})


@pytest.mark.parametrize("change", WRONG)
@pytest.mark.parametrize("name", ["heads", "cache", "block_tables", "query_start_loc", "context_lens"])
def test_paged_attention_refuses_what_it_cannot_compute(ops, name, change):
    _, attend = right_step()
    ops.paged_attention(**attend)
    if (name, change) != (
        "heads",
        "of one more row",
    ):  # the tokens are counted in memory that is not looked at
        with pytest.raises(InvalidTensor):
            ops.paged_attention(**attend | {name: WRONG[change](attend[name])})


@pytest.mark.parametrize(
    "shape", [{"head_dim": 258}, {"head_dim": 512}, {"num_heads": 49, "num_kv_heads": 1}]
)
def test_paged_attention_refuses_heads_beyond_its_tiles(ops, shape):
    _, attend = right_step(**shape)
    with pytest.raises(InvalidTensor, match="up to"):
        ops.paged_attention(**attend)


@pytest.mark.parametrize("shape", [{"num_heads": 0}, {"num_heads": 3}, {"num_heads": -1}, {"head_dim": 15}])
def test_heads_that_do_not_fit_the_cache_are_refused(ops, shape):
    rotate, attend = right_step(**shape)
    with pytest.raises(InvalidTensor, match="multiple"):
        ops.rotate_and_cache(**rotate)
    with pytest.raises(InvalidTensor, match="multiple"):
        ops.paged_attention(**attend)
