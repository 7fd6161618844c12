import pytest
import torch

from minivllm_kernels.errors import InvalidTensor
from minivllm_kernels.greedy_sample import greedy_sample
from minivllm_kernels.reference import greedy_sample as reference


@pytest.mark.parametrize("vocab_size", [1, 258, 4096, 9000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_equals_the_twin_ties_included(device, poisoned, vocab_size, dtype):
    wide = torch.randn((5, vocab_size + 3), device=device).to(dtype)
    logits = wide[:, :vocab_size]
    logits[1] = 1.0
    logits[2, vocab_size // 2 :] = 9.0
    wide[:, vocab_size:] = float("nan")
    token_ids = torch.zeros((8, 6), dtype=torch.int64, device=device)
    twin_ids = token_ids.clone()
    slots, positions = torch.tensor([[7, 0, 2, 4, 1], [0, 5, 3, 3, 1]], device=device)
    positions = positions.int() if dtype is torch.float16 else positions
    with poisoned():
        sampled = greedy_sample(logits, token_ids, slots, positions)
    assert torch.equal(sampled, reference.greedy_sample(logits, twin_ids, slots, positions))
    assert torch.equal(token_ids, twin_ids)
    assert sampled[1] == 0
    assert torch.equal(sampled, logits.float().cpu().max(dim=-1).indices.to(device))


def test_a_row_of_nan_has_an_id_that_exists(device):
    token_ids = torch.zeros((1, 1), dtype=torch.int64, device=device)
    place = torch.zeros(1, dtype=torch.int64, device=device)
    assert 0 <= greedy_sample(torch.full((1, 9), float("nan"), device=device), token_ids, place, place) < 9


def test_a_row_of_minus_infinities_has_an_id(device):
    token_ids = torch.zeros((1, 1), dtype=torch.int64, device=device)
    place = torch.zeros(1, dtype=torch.int64, device=device)
    assert greedy_sample(torch.full((1, 9), float("-inf"), device=device), token_ids, place, place) == 0


@pytest.mark.parametrize("op", [greedy_sample, reference.greedy_sample])
def test_refuses_slots_of_another_number_of_rows(device, op):
    rows = torch.zeros(2, dtype=torch.int64, device=device)
    with pytest.raises(InvalidTensor, match=r"slots has shape \(2,\), expected \(3,\)"):
        op(torch.zeros((3, 4), device=device), rows.view(1, 2), rows, rows)
