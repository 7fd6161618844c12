import pytest
import torch

from minivllm_runtime.sampling.sampling_batch import SamplingBatch

from .rows import CPU, batch_of, request


@pytest.mark.parametrize(("temperature", "is_greedy"), [(0, True), (1e-6, True), (1e-5, False), (1.0, False)])
def test_temperatures_near_zero_are_greedy(temperature, is_greedy):
    assert (batch_of([request(temperature=temperature)], [()], 8).random is None) is is_greedy


def test_a_greedy_step_makes_no_tensor():
    rows = [
        request(temperature=0.0, top_k=3, top_p=0.5),
        request(temperature=0.0, min_tokens=4),
        request(temperature=0.0, min_tokens=4, stop_token_ids=frozenset({8, 9})),
    ]
    assert batch_of(rows, [(), (1,), (1, 2)], 8) == SamplingBatch()


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"temperature": 0.0}, set()),
        ({"temperature": 0.0, "logit_bias": ((1, 1.0),)}, {"bias"}),
        ({"temperature": 0.0, "presence_penalty": 1.0}, {"penalties"}),
        ({"temperature": 0.0, "min_tokens": 1, "stop_token_ids": frozenset({1})}, {"banned"}),
        ({"temperature": 1.0}, {"random"}),
    ],
    ids=str,
)
def test_what_no_row_asks_for_is_none(changes, names):
    batch = batch_of([request(**changes), request(temperature=0.0)], [(), ()], 8)
    given = {name for name in ("penalties", "bias", "banned", "random") if getattr(batch, name) is not None}
    assert given == names


def test_the_limits_of_greedy_rows_are_not_the_step_s():
    greedy = request(temperature=0.0, top_k=2, top_p=0.1, min_p=0.1)
    draws = batch_of([greedy, request()], [(), ()], 8).random
    assert (draws.top_k, draws.top_p, draws.min_p) == (None, None, None)
    limited = batch_of([greedy, request(top_k=5), request(top_k=3), request()], [()] * 4, 8).random
    assert limited.largest_top_k == 5
    assert limited.top_k.tolist()[1:] == [5, 3, 8]
    assert limited.temperature.device == CPU


def test_bias_and_bans_name_their_rows_and_no_id_past_the_vocabulary():
    rows = [
        request(logit_bias=((3, 1.5), (8, 9.0), (1, -2.0)), min_tokens=2, stop_token_ids=frozenset({7, 8})),
        request(),
        request(logit_bias=((0, 4.0),), min_tokens=1, stop_token_ids=frozenset({2, 1})),
    ]
    batch = batch_of(rows, [(5,), (), (5,)], 8)
    assert [column.tolist() for column in batch.bias] == [[0, 0, 2], [3, 1, 0], [1.5, -2.0, 4.0]]
    assert [column.tolist() for column in batch.banned] == [[0], [7]]
    assert batch.bias[2].dtype == torch.float32
