import pytest
import torch

from minivllm_runtime.layers.norm import RMSNorm


def exact(x, weight, eps):
    x = x.double()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.double()


@pytest.mark.parametrize("rows", [1, 7, 500])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 8e-3), (torch.float16, 1e-3)]
)
@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_equals_the_definition_for_few_rows_and_many(rows, dtype, tolerance, offset):
    norm = RMSNorm(576, 1e-5)
    norm.weight.normal_(1.0, 0.2)
    norm.pack(dtype)
    x = (torch.randn(rows, 576) + offset).to(dtype)
    actual = norm(x)
    assert actual.dtype == dtype
    torch.testing.assert_close(actual.double(), exact(x, norm.weight, 1e-5), rtol=tolerance, atol=tolerance)


def test_heads_are_normalized_one_by_one():
    norm = RMSNorm(16, 1e-6)
    norm.weight.normal_(1.0, 0.2)
    norm.pack(torch.bfloat16)
    x = torch.randn(5, 3, 16).bfloat16()
    torch.testing.assert_close(norm(x).double(), exact(x, norm.weight, 1e-6), rtol=8e-3, atol=8e-3)
