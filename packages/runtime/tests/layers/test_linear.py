import pytest
import torch
from torch.nn import functional

from minivllm_runtime.layers.linear import GatedLinear, Linear

from ..device.every_ops import EVERY_OPS, ops_or_skip


def linear(dtype, *, bias):
    layer = Linear(64, 100, bias=bias)
    layer.weight.data = torch.randn(100, 64).to(dtype)
    if bias:
        layer.bias.data = torch.randn(100).to(dtype)
    return layer


@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("ops", "dtype"), EVERY_OPS)
def test_packed_and_plain_give_the_same_product(rows, bias, ops, dtype):
    layer = linear(dtype, bias=bias)
    x = torch.randn(rows, 64).to(dtype)
    offset = layer.bias.double() if bias else None
    exact = functional.linear(x.double(), layer.weight.double(), offset)
    tolerance = 1e-4 if dtype == torch.float32 else 5e-2
    torch.testing.assert_close(layer(x).double(), exact, rtol=tolerance, atol=tolerance)
    layer.pack(ops_or_skip(ops))
    torch.testing.assert_close(layer(x).double(), exact, rtol=tolerance, atol=tolerance)


def test_packing_drops_the_plain_copy():
    layer = linear(torch.bfloat16, bias=False)
    layer.pack(ops_or_skip("torch"))
    assert layer.weight.numel() == 0


@pytest.mark.parametrize("bias", [False, True])
def test_a_gated_projection_is_silu_of_one_half_times_the_other(bias):
    layer = GatedLinear(16, 2 * 8, bias=bias)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(3, 16)
    gate, up = torch.nn.functional.linear(x, layer.weight, layer.bias).chunk(2, dim=-1)
    expected = torch.nn.functional.silu(gate) * up
    torch.testing.assert_close(layer(x), expected)
    layer.pack(ops_or_skip("torch"))
    torch.testing.assert_close(layer(x), expected)
