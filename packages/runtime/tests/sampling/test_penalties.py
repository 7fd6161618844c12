"""Case C15: which tokens penalties count, by hand and against `transformers`."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import RepetitionPenaltyLogitsProcessor

from .rows import batch_of, request

VOCAB_SIZE = 7
some_ids = st.lists(st.integers(0, VOCAB_SIZE - 1), min_size=1, max_size=9).map(tuple)


def penalized(logits, requests, outputs):
    logits = torch.tensor(logits)
    batch = batch_of(requests, outputs, logits.shape[1])
    if batch.penalties is not None:
        batch.penalties.apply(logits)
    return logits


@pytest.mark.parametrize(
    ("penalties", "output", "expected"),
    [
        ({"frequency_penalty": 1.0}, (), [1, 1, 2, -1]),
        ({"repetition_penalty": 2.0}, (), [1, 1, 1, -1]),
        ({"repetition_penalty": 2.0}, (3,), [1, 1, 1, -2]),
        ({"frequency_penalty": 0.5, "presence_penalty": 0.25}, (1, 1), [1, -0.25, 2, -1]),
    ],
    ids="abcd",
)
def test_c15(penalties, output, expected):
    row = request(prompt_token_ids=(2, 2), **penalties)
    assert penalized([[1.0, 1.0, 2.0, -1.0]], [row], [output]).tolist() == [expected]


@given(st.lists(st.tuples(some_ids, some_ids, st.sampled_from([0.5, 1.0, 1.3])), min_size=1, max_size=4))
def test_repetition_is_that_of_transformers_whatever_the_neighbours(rows):
    logits = torch.randn(len(rows), VOCAB_SIZE, generator=torch.Generator().manual_seed(len(rows)))
    requests = [
        request(prompt_token_ids=prompt, repetition_penalty=penalty, temperature=0.0)
        for prompt, _, penalty in rows
    ]
    result = penalized(logits.tolist(), requests, [output for _, output, _ in rows])
    for index, (prompt, output, penalty) in enumerate(rows):
        processor = RepetitionPenaltyLogitsProcessor(penalty)
        expected = processor(torch.tensor([[*prompt, *output]]), logits[index : index + 1].clone())
        torch.testing.assert_close(result[index : index + 1], expected)


def test_prompt_ids_past_the_vocabulary_are_left_out():
    row = request(prompt_token_ids=(9, 4, 1), repetition_penalty=2.0, presence_penalty=1.0)
    assert penalized([[1.0, 1.0, 1.0]], [row], [(2,)]).tolist() == [[1.0, 0.5, -0.5]]
