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


@pytest.mark.parametrize(("size", "group_size"), [(8, 8), (24, 8), (1504, 8), (1536, 3), (7, 1)])
@pytest.mark.parametrize("op", [silu_and_mul, reference.silu_and_mul])
def test_groups_of_gate_and_up_in_turn_give_what_halves_give(device, poisoned, op, size, group_size):
    halves = torch.randn((3, 2 * size), device=device)
    groups = halves.view(3, 2, -1, group_size).transpose(1, 2).reshape(3, 2 * size)
    with poisoned():
        output = op(groups, group_size)
    torch.testing.assert_close(output, op(halves), atol=0, rtol=1e-6)


@pytest.mark.parametrize("op", [silu_and_mul, reference.silu_and_mul])
@pytest.mark.parametrize("group_size", [0, 3, 8])
def test_refuses_groups_that_do_not_fill_a_half(device, op, group_size):
    with pytest.raises(InvalidTensor, match=f"group_size is {group_size}, expected a divisor of 4"):
        op(torch.zeros((2, 8), device=device), group_size)


@pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning")
def test_large_gates_neither_overflow_nor_become_nan(device):
    x = torch.tensor([[-1e4, -200.0, 200.0, 1e4, 1, 1, 1, 1]], device=device)
    assert silu_and_mul(x).tolist() == [[0.0, 0.0, 200.0, 1e4]]


def test_reads_rows_with_gaps(device):
    wide = torch.randn((3, 40), device=device)
    torch.testing.assert_close(
        silu_and_mul(wide[:, :16]), silu_and_mul(wide[:, :16].contiguous()), atol=0, rtol=0
    )


@pytest.mark.parametrize("op", [silu_and_mul, reference.silu_and_mul])
@pytest.mark.parametrize("group_size", [None, 2])
def test_no_tokens_give_no_rows(device, op, group_size):
    assert op(torch.empty((0, 8), device=device), group_size).shape == (0, 4)


@pytest.mark.parametrize("op", [silu_and_mul, reference.silu_and_mul])
def test_refuses_rows_that_cannot_be_halved(device, op):
    with pytest.raises(InvalidTensor, match="rows of 7 elements"):
        op(torch.zeros((2, 7), device=device))
