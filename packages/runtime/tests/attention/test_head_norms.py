"""Norms of queries and keys: every backend of the CPU attends as to heads that were normalized beforehand."""

import pytest
import torch

from minivllm_kernels.head_norms import HeadNorms

from ..device.every_ops import EVERY_OPS, ops_or_skip
from .test_torch_backend import random_step, rotary_of

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}


def exact(heads, num_kv_heads, norms):
    """The heads, normalized by the definition and rounded once."""
    num_heads = heads.shape[1] - 2 * num_kv_heads
    wide = heads.double()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + norms.eps)
    normed[:, :num_heads] *= norms.query
    normed[:, num_heads : num_heads + num_kv_heads] *= norms.key
    normed[:, num_heads + num_kv_heads :] = wide[:, num_heads + num_kv_heads :]
    return normed.to(heads.dtype)


@pytest.mark.parametrize(("ops", "dtype"), EVERY_OPS)
@pytest.mark.parametrize("rows", [[(20, 1), (33, 1), (0, 1)], [(20, 1), (0, 17), (15, 5)]])
def test_every_backend_normalizes_queries_and_keys_alone(ops, dtype, rows):
    pool, layout, heads = random_step(rows, num_heads=6, num_kv_heads=2, head_dim=32, dtype=dtype)
    norms = HeadNorms(*(1 + torch.rand(2, 32)), eps=1e-2)
    rotary, plain_pool = rotary_of(layout, 32), pool.clone()
    actual = ops_or_skip(ops).attention([pool], 6, 0.25).plan(layout).attend(0, heads.clone(), rotary, norms)
    plain = ops_or_skip(ops).attention([plain_pool], 6, 0.25).plan(layout)
    expected = plain.attend(0, exact(heads, 2, norms), rotary)
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(pool, plain_pool, rtol=tolerance, atol=tolerance)
