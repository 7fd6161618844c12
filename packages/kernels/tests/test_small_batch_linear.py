import math

import pytest
import torch

from minivllm_kernels.errors import InvalidTensor
from minivllm_kernels.gate_up import interleave_gate_up
from minivllm_kernels.reference import small_batch_linear as reference
from minivllm_kernels.small_batch_linear import (
    max_small_batch,
    most_tokens,
    num_k_splits,
    small_batch_gated_linear,
    small_batch_linear,
)

TOLERANCES = [(torch.float16, 2**-10), (torch.bfloat16, 2**-7)]
SHAPES = [
    (1, 8),
    (3, 80),
    (33, 1504),
    (100, 5000),
    (768, 768),
    (896, 896),
    (2560, 2048),
    (2048, 5632),
    (11264, 2048),
    (151936, 1024),
]


def needs_hopper(test):
    runs = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
    return pytest.mark.gpu(pytest.mark.skipif(not runs, reason="needs a GPU of compute capability 9.0")(test))


def operands(num_tokens, num_rows, row_size, dtype):
    """x is a view of wider rows that end in NaN."""
    wide = torch.randn((num_tokens, row_size + 8), device="cuda").to(dtype)
    wide[:, row_size:] = float("nan")
    return wide[:, :row_size], torch.randn((num_rows, row_size), device="cuda").to(dtype)


@needs_hopper
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("num_tokens", [0, 1, 2, 8, 16, 17, 33, 64, 65, 256])
@pytest.mark.parametrize(("num_rows", "row_size"), SHAPES)
@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
def test_equals_the_twin(poisoned, num_tokens, num_rows, row_size, with_bias, dtype, tolerance):
    x, weight = operands(num_tokens, num_rows, row_size, dtype)
    bias = torch.randn(num_rows, device="cuda").to(dtype) if with_bias else None
    with poisoned():
        output = small_batch_linear(x, weight, bias)
    expected = reference.small_batch_linear(x, weight, bias)
    torch.testing.assert_close(output, expected, atol=1e-3 * row_size**0.5, rtol=tolerance)


@needs_hopper
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("num_tokens", [0, 1, 16, 33, 256])
@pytest.mark.parametrize("num_splits", [2, 3, 4, 32])
@pytest.mark.parametrize(("num_rows", "row_size"), SHAPES[:-2])
def test_parts_add_up_to_the_product(poisoned, num_tokens, num_rows, row_size, num_splits, with_bias):
    x, weight = operands(num_tokens, num_rows, row_size, torch.float16)
    bias = torch.randn(num_rows, device="cuda").half() if with_bias else None
    with poisoned():
        parts = small_batch_linear(x, weight, bias, num_splits=num_splits)
    assert parts.shape == (num_splits, num_tokens, num_rows)
    expected = reference.small_batch_linear(x, weight, bias, num_splits=num_splits)
    torch.testing.assert_close(parts.sum(0), expected.sum(0), atol=1e-4 * row_size**0.5, rtol=1e-5)
    if with_bias:
        assert torch.equal(parts[1:], small_batch_linear(x, weight, num_splits=num_splits)[1:])


@needs_hopper
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("num_tokens", [0, 1, 2, 16, 17, 33, 64, 65, 256])
@pytest.mark.parametrize(("num_rows", "row_size"), [(16, 8), (48, 80), (1504, 1024), (11264, 2048)])
@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
def test_a_gated_product_equals_the_twin(
    poisoned, num_tokens, num_rows, row_size, with_bias, dtype, tolerance
):
    x, weight = operands(num_tokens, num_rows, row_size, dtype)
    weight *= row_size**-0.5
    bias = torch.randn(num_rows, device="cuda").to(dtype) if with_bias else None
    with poisoned():
        output = small_batch_gated_linear(x, weight, bias)
    expected = reference.small_batch_gated_linear(x, weight, bias)
    torch.testing.assert_close(output, expected, atol=1e-3, rtol=tolerance)


@torch.inference_mode()
def test_the_gated_twin_is_the_activation_of_both_halves():
    gate, up, x = torch.randn(24, 16).half(), torch.randn(24, 16).half(), torch.randn(3, 16).half()
    gate_bias, up_bias = torch.randn(2, 24).half()
    weight = interleave_gate_up(torch.cat((gate, up)))
    output = reference.small_batch_gated_linear(
        x, weight, interleave_gate_up(torch.cat((gate_bias, up_bias)))
    )
    sums = (x.float() @ half.float().T + bias.float() for half, bias in ((gate, gate_bias), (up, up_bias)))
    expected = torch.nn.functional.silu(next(sums)) * next(sums)
    torch.testing.assert_close(output, expected.half(), atol=1e-3, rtol=2**-10)


@needs_hopper
@torch.inference_mode()
def test_large_gates_neither_overflow_nor_become_nan():
    weight = interleave_gate_up(torch.ones((16, 8), device="cuda").half())
    x = torch.tensor([[-1000.0], [-1.0], [0.0], [20.0]], device="cuda").half().expand(4, 8).contiguous()
    small = pytest.approx(64 / (1 + math.exp(8)), rel=1e-3)
    assert small_batch_gated_linear(x, weight)[:, 0].tolist() == [0.0, small, 0.0, 25600.0]


@pytest.mark.parametrize("op", [small_batch_gated_linear, reference.small_batch_gated_linear])
def test_no_tokens_give_no_gated_rows(op):
    assert op(torch.zeros(0, 8).half(), torch.zeros(32, 8).half()).shape == (0, 16)


@pytest.mark.parametrize("op", [small_batch_gated_linear, reference.small_batch_gated_linear])
def test_refuses_rows_that_are_no_whole_groups(op):
    with pytest.raises(InvalidTensor, match="weight has 24 rows, expected a multiple of 16"):
        op(torch.zeros(2, 8).half(), torch.zeros(24, 8).half())


@pytest.mark.parametrize("num_splits", [1, 2, 3, 9, 32])
@torch.inference_mode()
def test_parts_of_the_twin_add_up_and_the_first_has_the_bias(num_splits):
    x, weight, bias = torch.randn(3, 24).half(), torch.randn(5, 24).half(), torch.randn(5).half()
    parts = reference.small_batch_linear(x, weight, num_splits=num_splits)
    with_bias = reference.small_batch_linear(x, weight, bias, num_splits=num_splits)
    whole = x.float() @ weight.float().T
    if num_splits == 1:
        assert torch.equal(parts, whole.half())
        assert torch.equal(with_bias, (whole + bias.float()).half())
        return
    assert parts.shape == (num_splits, 3, 5)
    torch.testing.assert_close(parts.sum(0), whole, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(with_bias[0], parts[0] + bias.float())
    assert torch.equal(with_bias[1:], parts[1:])


def test_weights_of_few_rows_are_worth_more_tokens():
    assert [most_tokens(n) for n in (64, 1024, 2048, 2560, 4096, 11264, 151936)] == [
        *(256, 256, 192, 128),
        *(64, 64, 64),
    ]


@pytest.mark.parametrize("num_tokens", [1, 16, 64, 256])
@pytest.mark.parametrize(("num_rows", "row_size"), SHAPES)
def test_splits_fill_the_device_and_leave_each_something_to_do(num_tokens, num_rows, row_size):
    weight = torch.empty((num_rows, row_size), device="meta")
    splits = num_k_splits(num_tokens, weight)
    assert splits in (1, 2, 4)
    tiles = -(-num_rows // 64) * -(-num_tokens // 64)
    assert splits == 1 or (splits * tiles <= 132 and row_size / splits >= 128)


@pytest.mark.parametrize("op", [small_batch_linear, reference.small_batch_linear])
@pytest.mark.parametrize(
    ("num_tokens", "row_size", "dtype", "num_splits", "message"),
    [
        (257, 8, torch.float16, 1, "x has 257 rows, expected at most 256"),
        (2, 8, torch.float32, 1, "x has dtype torch.float32, expected torch.float16 or torch.bfloat16"),
        (2, 12, torch.float16, 1, "x has rows that overlap, or do not begin at multiples of 16 bytes"),
        (2, 8, torch.float16, 0, "num_splits is 0, expected 1 to 32"),
        (2, 8, torch.float16, 33, "num_splits is 33, expected 1 to 32"),
    ],
)
def test_refuses_what_it_cannot_multiply(op, num_tokens, row_size, dtype, num_splits, message):
    x, weight = torch.zeros((num_tokens, row_size), dtype=dtype), torch.zeros((4, row_size), dtype=dtype)
    with pytest.raises(InvalidTensor, match=message):
        op(x, weight, num_splits=num_splits)


@pytest.mark.parametrize("op", [small_batch_linear, reference.small_batch_linear])
def test_refuses_rows_that_overlap(op):
    with pytest.raises(InvalidTensor, match="x has rows that overlap"):
        op(torch.zeros(8).half().expand(3, 8), torch.zeros(4, 8).half())


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_cpu_runs_no_small_batches(dtype):
    assert max_small_batch(torch.zeros((4, 8), dtype=dtype)) == 0
