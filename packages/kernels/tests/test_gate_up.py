import pytest
import torch

from minivllm_kernels.errors import InvalidTensor
from minivllm_kernels.gate_up import interleave_gate_up


@pytest.mark.parametrize("columns", [(), (3,)])
def test_eight_rows_of_gate_are_followed_by_the_eight_of_up_that_belong_to_them(columns):
    rows = torch.arange(32).view(32, *(1 for _ in columns)).expand(32, *columns)
    interleaved = interleave_gate_up(rows)
    order = [*range(8), *range(16, 24), *range(8, 16), *range(24, 32)]
    assert interleaved.shape == rows.shape
    assert torch.equal(interleaved, rows[order])


def test_refuses_rows_that_are_no_whole_groups():
    with pytest.raises(InvalidTensor, match="halves has 24 rows, expected a multiple of 16"):
        interleave_gate_up(torch.zeros(24, 3))
