import pytest
import torch

from minivllm_kernels.errors import InvalidTensor
from minivllm_kernels.reference import small_batch_linear as reference
from minivllm_kernels.small_batch_linear import runs_small_batches, small_batch_linear

TOLERANCES = [(torch.float16, 2**-10), (torch.bfloat16, 2**-7)]
SHAPES = [(1, 1), (3, 80), (33, 1500), (100, 5000), (2560, 2048), (2048, 5632), (11264, 2048), (151936, 1024)]


@pytest.mark.gpu
@pytest.mark.skipif(
    not (torch.cuda.is_available() and runs_small_batches(torch.device("cuda"), torch.float16)),
    reason="needs a GPU of compute capability 8.0",
)
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("num_tokens", [0, 1, 2, 5, 8])
@pytest.mark.parametrize(("num_rows", "row_size"), SHAPES)
@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
def test_equals_the_twin(poisoned, num_tokens, num_rows, row_size, with_bias, dtype, tolerance):
    wide = torch.randn((num_tokens, row_size + 3), device="cuda").to(dtype)
    wide[:, row_size:] = float("nan")
    x = wide[:, :row_size]
    weight = torch.randn((num_rows, row_size), device="cuda").to(dtype)
    bias = torch.randn(num_rows, device="cuda").to(dtype) if with_bias else None
    with poisoned():
        output = small_batch_linear(x, weight, bias)
    expected = reference.small_batch_linear(x, weight, bias)
    torch.testing.assert_close(output, expected, atol=1e-3 * row_size**0.5, rtol=tolerance)


@pytest.mark.parametrize("op", [small_batch_linear, reference.small_batch_linear])
@pytest.mark.parametrize(
    ("num_tokens", "dtype", "message"),
    [
        (9, torch.float16, "x has 9 rows, expected at most 8"),
        (2, torch.float32, "x has dtype torch.float32, expected torch.float16 or torch.bfloat16"),
    ],
)
def test_refuses_large_batches_and_single_precision(op, num_tokens, dtype, message):
    with pytest.raises(InvalidTensor, match=message):
        op(torch.zeros((num_tokens, 8), dtype=dtype), torch.zeros((4, 8), dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_cpu_runs_no_small_batches(dtype):
    assert not runs_small_batches(torch.device("cpu"), dtype)
