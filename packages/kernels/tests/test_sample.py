"""Sampling against its twin, and against what every draw must satisfy."""

import pytest
import torch

from minivllm_kernels.errors import InvalidTensor
from minivllm_kernels.reference import sample as reference
from minivllm_kernels.sample import sample
from minivllm_kernels.sampling_table import SamplingTable

GREEDY = (0.0, 1.0, 0.0, 0)
FREE = (1.0, 1.0, 0.0, 0)
LIMITS = [
    GREEDY,
    FREE,
    (0.6, 1.0, 0.0, 0),
    (1.7, 1.0, 0.0, 5),
    (1.0, 0.7, 0.0, 0),
    (0.8, 0.999, 0.0, 0),
    (1.0, 1e-6, 0.0, 0),
    (1.0, 1.0, 0.2, 0),
    (0.9, 0.8, 0.05, 30),
    (1.0, 0.9, 0.0, 1),
    (1.0, 1.0, 0.0, 10**9),
    (2.0**-10, 0.5, 0.0, 3),
]
"""Temperature, top_p, min_p, top_k."""


def make_table(device, limits, *, seeds=None, num_prompt_tokens=0):
    """A slot for each of the limits."""
    floats = torch.tensor([limit[:3] for limit in limits], dtype=torch.float32)
    integers = torch.zeros((len(limits), 4), dtype=torch.int64)
    integers[:, 0] = torch.tensor([limit[3] for limit in limits])
    integers[:, 1] = torch.arange(len(limits)) * 0x5DEECE66D9 - 2**62 if seeds is None else seeds
    integers[:, 2] = torch.arange(len(limits)) % 3
    integers[:, 3] = num_prompt_tokens
    return SamplingTable(floats.to(device), integers.to(device))


def sample_all(device, op, logits, table, positions=None):
    """The ids of all slots, and the table of known ids that they were written to."""
    num_rows = len(logits)
    token_ids = torch.zeros((num_rows, 40), dtype=torch.int64, device=device)
    slots = torch.arange(num_rows, device=device).flip(0)
    if positions is None:
        positions = torch.arange(num_rows, device=device) + 7
    return op(logits, token_ids, slots, positions, table), token_ids


@pytest.mark.parametrize("vocab_size", [1, 3, 258, 4096, 20_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_equals_the_twin(device, poisoned, vocab_size, dtype):
    wide = (torch.randn((len(LIMITS), vocab_size + 3), device=device) * 3).to(dtype)
    wide[:, vocab_size:] = float("nan")
    logits = wide[:, :vocab_size]
    table = make_table(device, LIMITS, num_prompt_tokens=2)
    with poisoned():
        sampled, token_ids = sample_all(device, sample, logits, table)
    expected, twin_ids = sample_all(device, reference.sample, logits, table)
    assert torch.equal(sampled, expected)
    assert torch.equal(token_ids, twin_ids)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_greedy_takes_the_first_of_several(device, dtype):
    logits = torch.randn((3, 9000), device=device).to(dtype)
    logits[1] = 1.0
    logits[2, 4500:] = 9.0
    sampled, _ = sample_all(device, sample, logits, make_table(device, [GREEDY] * 3))
    assert torch.equal(sampled, logits.float().cpu().max(dim=-1).indices.to(device))


@pytest.mark.parametrize("limit", [FREE, (1.0, 0.5, 0.0, 0), (1.0, 1.0, 0.3, 0), (1.0, 1.0, 0.0, 4)])
def test_ids_tied_at_a_threshold_are_all_drawn(device, limit):
    num_rows = 60
    logits = torch.full((num_rows, 10), -9.0, device=device)
    logits[:, [1, 4, 6, 8]] = 2.0
    table = make_table(device, [limit] * num_rows)
    sampled, _ = sample_all(device, sample, logits, table, torch.full((num_rows,), 3, device=device))
    assert set(sampled.tolist()) == {1, 4, 6, 8}


def test_neither_neighbours_nor_the_slot_change_a_draw(device):
    logits = torch.randn((len(LIMITS), 5000), device=device)
    table = make_table(device, LIMITS)
    together, _ = sample_all(device, sample, logits, table)
    for row in range(len(LIMITS)):
        slot = len(LIMITS) - 1 - row
        alone = SamplingTable(table.floats[slot : slot + 1], table.integers[slot : slot + 1])
        position = torch.tensor([row + 7], device=device)
        sampled, _ = sample_all(device, sample, logits[row : row + 1], alone, position)
        assert sampled[0] == together[row]


@pytest.mark.parametrize(("value", "vocab_size"), [("nan", 9), ("-inf", 9), ("-inf", 9000)])
def test_a_row_without_a_finite_logit_has_an_id_that_exists(device, value, vocab_size):
    logits = torch.full((len(LIMITS), vocab_size), float(value), device=device)
    sampled, _ = sample_all(device, sample, logits, make_table(device, LIMITS))
    assert ((sampled >= 0) & (sampled < vocab_size)).all()


def test_forbidden_ids_are_never_drawn(device):
    logits = torch.full((len(LIMITS), 9000), float("-inf"), device=device)
    logits[:, 4321] = -3.0
    sampled, _ = sample_all(device, sample, logits, make_table(device, LIMITS))
    assert sampled.tolist() == [4321] * len(LIMITS)


@pytest.mark.parametrize("op", [sample, reference.sample])
def test_refuses_slots_of_another_number_of_rows(device, op):
    rows = torch.zeros(2, dtype=torch.int64, device=device)
    with pytest.raises(InvalidTensor, match=r"slots has shape \(2,\), expected \(3,\)"):
        op(torch.zeros((3, 4), device=device), rows.view(1, 2), rows, rows, make_table(device, [FREE]))


@pytest.mark.parametrize("op", [sample, reference.sample])
def test_refuses_a_table_of_other_slots(device, op):
    rows = torch.zeros(2, dtype=torch.int64, device=device)
    with pytest.raises(InvalidTensor, match=r"table.floats has shape \(1, 3\), expected \(2, 3\)"):
        op(torch.zeros((2, 4), device=device), rows.view(2, 1), rows, rows, make_table(device, [FREE]))
