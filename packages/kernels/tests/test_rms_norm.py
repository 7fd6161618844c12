import pytest
import torch

from minivllm_kernels.errors import InvalidTensor
from minivllm_kernels.reference import rms_norm as reference
from minivllm_kernels.rms_norm import add_rms_norm, rms_norm

# Half precision is rounded twice, and Triton's interpreter rounds to bfloat16 by cutting off.
TOLERANCES = [(torch.float32, 1e-6), (torch.float16, 2**-9), (torch.bfloat16, 2**-6)]
SHAPES = [(1, 1), (3, 80), (2, 5, 576), (7, 1536)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
def test_rms_norm_equals_the_twin(device, poisoned, shape, dtype, tolerance):
    x = torch.randn(shape, device=device).to(dtype) * 3
    weight = torch.randn(shape[-1], device=device).to(dtype)
    with poisoned():
        normed = rms_norm(x, weight, 1e-5)
    torch.testing.assert_close(normed, reference.rms_norm(x, weight, 1e-5), atol=1e-6, rtol=tolerance)


@pytest.mark.parametrize("shape", [(1, 1), (3, 80), (2, 576), (7, 1536)])
@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
def test_add_rms_norm_equals_the_twin(device, poisoned, shape, dtype, tolerance):
    x, residual = torch.randn((2, *shape), device=device).to(dtype)
    weight = torch.randn(shape[-1], device=device).to(dtype)
    before, twin_residual = x.clone(), residual.clone()
    with poisoned():
        normed = add_rms_norm(x, residual, weight, 1e-5)
    expected = reference.add_rms_norm(x, twin_residual, weight, 1e-5)
    # The sum is rounded, too.
    torch.testing.assert_close((normed, residual), (expected, twin_residual), atol=1e-6, rtol=2 * tolerance)
    assert torch.equal(x, before)


@pytest.mark.parametrize("num_parts", [1, 2, 4, 7])
@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
def test_add_rms_norm_adds_parts_first(device, poisoned, num_parts, dtype, tolerance):
    parts = torch.randn((num_parts, 3, 2 * 80), device=device)[:, :, 80:]
    residual = torch.randn((3, 80), device=device).to(dtype)
    weight = torch.randn(80, device=device).to(dtype)
    twin_residual, whole_residual = residual.clone(), residual.clone()
    with poisoned():
        normed = add_rms_norm(parts, residual, weight, 1e-5)
    expected = reference.add_rms_norm(parts, twin_residual, weight, 1e-5)
    torch.testing.assert_close(
        (normed, residual), (expected, twin_residual), atol=2 * tolerance, rtol=2 * tolerance
    )
    whole = add_rms_norm(sum(parts).to(dtype), whole_residual, weight, 1e-5)
    torch.testing.assert_close(
        (normed, residual), (whole, whole_residual), atol=2 * tolerance, rtol=2 * tolerance
    )


@pytest.mark.parametrize("op", [add_rms_norm, reference.add_rms_norm])
def test_refuses_parts_that_are_not_sums_in_single_precision(device, op):
    residual, weight = (
        torch.zeros((2, 8), device=device, dtype=torch.float16),
        torch.ones(8, device=device).half(),
    )
    with pytest.raises(InvalidTensor, match=r"x has dtype torch.float16, expected torch.float32"):
        op(torch.zeros((2, 2, 8), device=device, dtype=torch.float16), residual, weight, 1e-5)
    with pytest.raises(InvalidTensor, match=r"x has shape \(0, 2, 8\), expected at least 1 part"):
        op(torch.zeros((0, 2, 8), device=device), residual, weight, 1e-5)
    with pytest.raises(InvalidTensor, match=r"residual has shape \(2, 8\), expected \(3, 8\)"):
        op(torch.zeros((2, 3, 8), device=device), residual, weight, 1e-5)


def test_eps_keeps_a_row_of_zeros_at_zero(device):
    assert not rms_norm(torch.zeros((2, 8), device=device), torch.ones(8, device=device), 1e-5).any()


def test_heads_of_a_fused_projection_need_no_contiguous_input(device):
    fused = torch.randn((4, 6, 16), device=device)
    weight = torch.randn(16, device=device)
    torch.testing.assert_close(rms_norm(fused[:, :3], weight, 1e-6), rms_norm(fused, weight, 1e-6)[:, :3])
    columns = torch.randn((16, 3), device=device).T
    torch.testing.assert_close(rms_norm(columns, weight, 1e-6), rms_norm(columns.contiguous(), weight, 1e-6))


def test_no_rows_give_no_rows(device):
    assert rms_norm(torch.empty((0, 8), device=device), torch.ones(8, device=device), 1e-5).shape == (0, 8)


@pytest.mark.parametrize("op", [rms_norm, reference.rms_norm])
def test_refuses_a_weight_of_another_size(device, op):
    with pytest.raises(InvalidTensor, match=r"weight has shape \(4,\), expected \(8,\)"):
        op(torch.zeros((2, 8), device=device), torch.ones(4, device=device), 1e-5)
