import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minivllm_runtime.messages import TokenLogprobs
from minivllm_runtime.sampling.logprobs import logprob_table, most_probable_ids, read_table

# Few values, so that many are equal.
scores = st.lists(
    st.lists(st.sampled_from([-math.inf, -2.5, -0.0, 0.0, 1e-30, 3.0]), min_size=6, max_size=6), min_size=1
)


@given(scores, st.integers(0, 6))
def test_the_most_probable_ids_are_in_order_and_ties_go_to_the_lowest(rows, count):
    expected = [sorted(range(6), key=lambda i, row=row: (-row[i], i))[:count] for row in rows]
    assert most_probable_ids(torch.tensor(rows), count).tolist() == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_table_says_what_log_softmax_says(dtype):
    logits = (torch.randn(7, 50, generator=torch.Generator().manual_seed(2)) * 4).to(dtype)
    token_ids = torch.arange(7) * 3
    reference = torch.log_softmax(logits.float(), dim=-1)
    for token_id, expected, row in zip(
        token_ids.tolist(),
        reference.tolist(),
        read_table(logprob_table(logits, token_ids, 4, 50).tolist(), [4] * 7),
        strict=True,
    ):
        assert row.logprob == expected[token_id]
        assert row.rank == 1 + sum(value > expected[token_id] for value in expected)
        assert [logprob for _, logprob in row.top] == sorted(expected, reverse=True)[:4]
        assert all(expected[top_id] == logprob for top_id, logprob in row.top)


def test_padding_of_the_vocabulary_has_probability_but_is_never_shown():
    logits = torch.tensor([[1.0, 2.0, 9.0, 9.0]])
    (row,) = read_table(logprob_table(logits, torch.tensor([0]), 4, 2).tolist(), [4])
    reference = torch.log_softmax(logits, dim=-1)[0].tolist()
    assert row == TokenLogprobs(reference[0], 2, ((1, reference[1]), (0, reference[0])))


def test_each_row_shows_as_many_as_it_asked_for():
    table = logprob_table(torch.zeros(3, 9), torch.tensor([8, 0, 1]), 5, 9)
    rows = read_table(table.tolist(), [0, 5, 2])
    assert [[token_id for token_id, _ in row.top] for row in rows] == [[], [0, 1, 2, 3, 4], [0, 1]]
    assert [row.rank for row in rows] == [1, 1, 1]


def test_impossible_tokens_stay_minus_infinity():
    logits = torch.tensor([[0.0, -math.inf, -math.inf]])
    (row,) = read_table(logprob_table(logits, torch.tensor([1]), 3, 3).tolist(), [3])
    assert row == TokenLogprobs(-math.inf, 2, ((0, 0.0), (1, -math.inf), (2, -math.inf)))
