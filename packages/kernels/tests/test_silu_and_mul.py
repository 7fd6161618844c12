import pytest
import torch

from minivllm_kernels.errors import InvalidTensor
from minivllm_kernels.reference import silu_and_mul as reference
from minivllm_kernels.silu_and_mul import silu_and_mul

# Half precision is rounded twice, and Triton's interpreter rounds to bfloat16 by cutting off.
TOLERANCES = [(torch.float32, 1e-6), (torch.float16, 2**-9), (torch.bfloat16, 2**-6)]


@pytest.mark.parametrize(("num_tokens", "size"), [(1, 1), (3, 80), (2, 1536)])
@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
def test_equals_the_twin(device, poisoned, num_tokens, size, dtype, tolerance):
    x = torch.randn((num_tokens, 2 * size), device=device).to(dtype) * 4
    with poisoned():
        output = silu_and_mul(x)
    torch.testing.assert_close(output, reference.silu_and_mul(x), atol=1e-6, rtol=tolerance)


@pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning")
def test_large_gates_neither_overflow_nor_become_nan(device):
    x = torch.tensor([[-1e4, -200.0, 200.0, 1e4, 1, 1, 1, 1]], device=device)
    assert silu_and_mul(x).tolist() == [[0.0, 0.0, 200.0, 1e4]]


def test_reads_rows_with_gaps(device):
    wide = torch.randn((3, 40), device=device)
    torch.testing.assert_close(
        silu_and_mul(wide[:, :16]), silu_and_mul(wide[:, :16].contiguous()), atol=0, rtol=0
    )


def test_no_tokens_give_no_rows(device):
    assert silu_and_mul(torch.empty((0, 8), device=device)).shape == (0, 4)


@pytest.mark.parametrize("op", [silu_and_mul, reference.silu_and_mul])
def test_refuses_rows_that_cannot_be_halved(device, op):
    with pytest.raises(InvalidTensor, match="rows of 7 elements"):
        op(torch.zeros((2, 7), device=device))
