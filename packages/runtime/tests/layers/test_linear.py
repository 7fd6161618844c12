import pytest
import torch
from torch.nn import functional

from minivllm_runtime.layers.linear import Linear


def linear(dtype, *, bias):
    layer = Linear(64, 96, bias=bias)
    layer.weight.data = torch.randn(96, 64).to(dtype)
    if bias:
        layer.bias.data = torch.randn(96).to(dtype)
    return layer


@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 5e-2)])
def test_packed_and_plain_give_the_same_product(rows, bias, dtype, tolerance):
    layer = linear(dtype, bias=bias)
    x = torch.randn(rows, 64).to(dtype)
    offset = layer.bias.double() if bias else None
    exact = functional.linear(x.double(), layer.weight.double(), offset)
    for packed in (False, True):
        if packed:
            layer.pack()
        torch.testing.assert_close(layer(x).double(), exact, rtol=tolerance, atol=tolerance)


def test_packing_drops_the_plain_copy_of_a_half_precision_weight():
    layer = linear(torch.bfloat16, bias=False)
    layer.pack()
    assert layer.weight.numel() == 0
