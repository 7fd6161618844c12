import pytest
import torch

from minivllm_runtime.layers.norm import RMSNorm

from ..device.every_ops import EVERY_OPS, ops_or_skip

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 8e-3, torch.float16: 1e-3}


def exact(x, weight, eps):
    x = x.double()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.double()


def packed_norm(size, ops):
    norm = RMSNorm(size, 1e-5)
    norm.weight.normal_(1.0, 0.2)
    norm.pack(ops_or_skip(ops))
    return norm


@pytest.mark.parametrize("rows", [1, 7, 500])
@pytest.mark.parametrize(("ops", "dtype"), EVERY_OPS)
@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_equals_the_definition_for_few_rows_and_many(rows, ops, dtype, offset):
    norm = packed_norm(576, ops)
    x = (torch.randn(rows, 576) + offset).to(dtype)
    actual = norm(x)
    assert actual.dtype == dtype
    expected = exact(x, norm.weight, 1e-5)
    torch.testing.assert_close(actual.double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize(("ops", "dtype"), EVERY_OPS)
def test_adding_norm_keeps_the_sum(ops, dtype):
    norm = packed_norm(40, ops)
    x, residual = torch.randn(3, 40).to(dtype), torch.randn(3, 40).to(dtype)
    total = residual + x
    actual = norm.add(x, residual)
    assert torch.equal(residual, total)
    expected = exact(total, norm.weight, 1e-5)
    torch.testing.assert_close(actual.double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
