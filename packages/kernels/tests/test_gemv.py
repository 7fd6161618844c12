import pytest
import torch

from minivllm_kernels.errors import InvalidTensor
from minivllm_kernels.gemv import gemv
from minivllm_kernels.reference import gemv as reference

TOLERANCES = [(torch.float32, 1e-5), (torch.float16, 2**-10), (torch.bfloat16, 2**-7)]
SHAPES = [(1, 1), (3, 80), (7, 1500), (9, 5000)]


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(("num_rows", "row_size"), SHAPES)
@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
def test_equals_the_twin(device, poisoned, num_rows, row_size, with_bias, dtype, tolerance):
    x = torch.randn((1, row_size), device=device).to(dtype)
    weight = torch.randn((num_rows, row_size), device=device).to(dtype)
    bias = torch.randn(num_rows, device=device).to(dtype) if with_bias else None
    with poisoned():
        output = gemv(x, weight, bias)
    expected = reference.gemv(x, weight, bias)
    torch.testing.assert_close(output, expected, atol=1e-4 * row_size**0.5, rtol=tolerance)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("num_rows", "row_size"), [(2560, 2048), (11264, 2048), (2048, 5632), (151936, 1024)]
)
def test_equals_the_twin_at_full_size(device, poisoned, num_rows, row_size):
    x = torch.randn((1, row_size), device=device).half()
    weight = torch.randn((num_rows, row_size), device=device).half()
    with poisoned():
        output = gemv(x, weight)
    torch.testing.assert_close(output, reference.gemv(x, weight), atol=0.02, rtol=2**-10)


@pytest.mark.parametrize("op", [gemv, reference.gemv])
def test_refuses_more_than_one_row(device, op):
    with pytest.raises(InvalidTensor, match=r"x has shape \(2, 8\), expected \(1, 8\)"):
        op(torch.zeros((2, 8), device=device), torch.zeros((4, 8), device=device))
