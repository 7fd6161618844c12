import pytest
import torch

from minivllm_kernels.decode_inputs import decode_inputs
from minivllm_kernels.errors import InvalidTensor
from minivllm_kernels.reference import decode_inputs as reference


@pytest.mark.parametrize(("block_size", "num_blocks"), [(1, 300), (5, 60), (16, 20)])
def test_equals_the_twin_where_it_is_defined(device, poisoned, block_size, num_blocks):
    token_ids = torch.randint(10**6, (7, 300), device=device)
    block_tables = torch.randint(2**31 - 1, (7, num_blocks), dtype=torch.int32, device=device)
    slots = torch.tensor([6, 0, 3, 3], device=device)
    positions = torch.tensor([299, 0, block_size, 2 * block_size - 1], device=device)
    with poisoned():
        step = decode_inputs(slots, positions, token_ids, block_tables, block_size)
    expected = reference.decode_inputs(slots, positions, token_ids, block_tables, block_size)
    for row, length in enumerate(step.context_lens.tolist()):
        used = -(-length // block_size)
        assert torch.equal(step.block_tables[row, :used], expected.block_tables[row, :used])
        step.block_tables[row, used:] = expected.block_tables[row, used:]
    for actual, twin in zip(step, expected, strict=True):
        assert torch.equal(actual, twin)


@pytest.mark.parametrize("op", [decode_inputs, reference.decode_inputs])
@pytest.mark.parametrize("num_rows", [0, 1, 255, 257, 600])
def test_longest_first_sorts_any_number_of_rows_and_keeps_the_order_of_equals(device, op, num_rows):
    positions = torch.randint(40, (num_rows,), device=device)
    tables = torch.zeros((max(num_rows, 1), 64), dtype=torch.int64, device=device)
    step = op(torch.arange(num_rows, device=device), positions, tables, tables.int(), 1)
    lengths = positions.tolist()
    assert step.longest_first.tolist() == sorted(range(num_rows), key=lambda row: (-lengths[row], row))


@pytest.mark.parametrize("op", [decode_inputs, reference.decode_inputs])
def test_refuses_positions_of_another_number_of_rows(device, op):
    rows = torch.zeros(2, dtype=torch.int64, device=device)
    with pytest.raises(InvalidTensor, match=r"positions has shape \(1,\), expected \(2,\)"):
        op(rows, rows[:1], rows.view(1, 2), rows.view(1, 2).int(), 4)
