"""The sampler against the definition of each step, one row and one token at a time."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minivllm_runtime.engine.messages import EngineRequest
from minivllm_runtime.sampling.philox import uniforms
from minivllm_runtime.sampling.sampler import sample
from minivllm_runtime.sampling.sampling_batch import SamplingBatch

CPU = torch.device("cpu")


def request(**changes):
    return EngineRequest(**{"request_id": "r", "prompt_token_ids": (0,), "max_tokens": 9, **changes})


def draw(logits, requests, output_indices=None):
    logits = torch.tensor(logits)
    indices = output_indices or [0] * len(requests)
    return sample(logits, SamplingBatch.build(requests, indices, logits.shape[-1], CPU)).tolist()


def naive(logits, row, index):
    """The definition, in double precision: kept set first, then the inverse of its cumulative distribution."""
    if row.temperature < 1e-5:
        return logits.index(max(logits))
    scaled = [value / row.temperature for value in logits]
    if 0 < row.top_k < len(scaled):
        threshold = sorted(scaled, reverse=True)[row.top_k - 1]
        scaled = [value if value >= threshold else -math.inf for value in scaled]

    def probabilities():
        top = max(scaled)
        weights = [math.exp(value - top) for value in scaled]
        return [weight / sum(weights) for weight in weights]

    if row.top_p < 1:
        kept, mass = [], 0.0
        for probability in sorted(probabilities(), reverse=True):
            if kept and mass >= row.top_p:
                break
            kept.append(probability)
            mass += probability
        scaled = [v if p >= kept[-1] else -math.inf for v, p in zip(scaled, probabilities(), strict=True)]
    most = max(probabilities())
    scaled = [v if p >= row.min_p * most else -math.inf for v, p in zip(scaled, probabilities(), strict=True)]
    target = uniforms([row.seed], [row.choice], [index])[0] * sum(probabilities())
    cumulative = 0.0
    for token_id, probability in enumerate(probabilities()):
        cumulative += probability
        if cumulative > target:
            return token_id
    raise AssertionError("u < 1, so some token is reached")


# Quarters keep every threshold clear of rounding: ties are exact, neighbours are far apart.
logit_rows = st.lists(st.integers(-20, 20).map(lambda quarter: quarter / 4), min_size=6, max_size=6)
rows = st.builds(
    request,
    temperature=st.sampled_from([0.0, 1e-6, 0.5, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 2, 5, 6, 100]),
    top_p=st.sampled_from([0.0, 0.313, 0.777, 0.951, 1.0]),
    min_p=st.sampled_from([0.0, 0.05003, 0.4003, 1.0]),
    seed=st.integers(0, 2**64 - 1),
    choice=st.integers(0, 127),
)


@given(st.lists(st.tuples(logit_rows, rows, st.integers(0, 1000)), min_size=1, max_size=5))
def test_a_batch_draws_what_the_definition_says_of_each_row(batch):
    logits, requests, indices = (list(column) for column in zip(*batch, strict=True))
    assert draw(logits, requests, indices) == [naive(*row) for row in batch]


def test_c12_a_greedy_row_beside_a_random_one_takes_the_lowest_of_tied_ids():
    logits = [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0]]
    drawn = [
        draw(logits, [request(temperature=0.0), request(temperature=1.0, seed=5)], [0, index])
        for index in range(200)
    ]
    assert {greedy for greedy, _ in drawn} == {0}
    assert {random for _, random in drawn} == {0, 1, 2}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_c12_tiny_temperatures_neither_overflow_nor_draw(dtype):
    logits = torch.tensor([[11.06, -11.06, 11.06, 0.0]] * 2, dtype=dtype)
    requests = [request(temperature=1e-6), request(temperature=1.0, seed=1)]
    token_ids = sample(logits, SamplingBatch.build(requests, [0, 0], 4, CPU))
    assert token_ids[0] == 0


def test_frequencies_follow_the_distribution():
    logits = torch.tensor([[0.0, math.log(2), math.log(5)]] * 8000)
    requests = [request(seed=seed) for seed in range(8000)]
    counts = sample(logits, SamplingBatch.build(requests, [0] * 8000, 3, CPU)).bincount(minlength=3)
    for count, share in zip(counts.tolist(), (1 / 8, 2 / 8, 5 / 8), strict=True):
        assert abs(count / 8000 - share) < 4 * math.sqrt(share * (1 - share) / 8000)


def test_stop_ids_are_banned_until_min_tokens():
    rows = [request(temperature=0.0, min_tokens=3, stop_token_ids=frozenset({0, 2}))] * 3
    assert draw([[9.0, 1.0, 5.0]] * 3, rows, [0, 2, 3]) == [1, 1, 0]


@pytest.mark.parametrize("vocab_size", [200, 300, 5000, 49152])
def test_top_p_on_a_flat_distribution_widens_its_candidates(vocab_size):
    """Half the mass of equal tokens: ties are all kept, so every id can be drawn."""
    requests = [request(top_p=0.5, seed=seed) for seed in range(64)]
    logits = torch.zeros(64, vocab_size)
    token_ids = sample(logits, SamplingBatch.build(requests, [0] * 64, vocab_size, CPU))
    assert token_ids.max() > vocab_size // 2
    assert token_ids.unique().numel() > 32


def test_top_p_past_the_first_candidates_keeps_exactly_the_smallest_set():
    vocab_size = 4096
    logits = torch.linspace(0, -1, vocab_size).repeat(256, 1)
    mass = torch.softmax(logits[0].double(), -1).cumsum(0)
    boundary = int((mass < 0.9).sum())
    requests = [request(top_p=0.9, seed=seed) for seed in range(256)]
    token_ids = sample(logits, SamplingBatch.build(requests, [0] * 256, vocab_size, CPU))
    assert boundary * 0.9 < token_ids.max() <= boundary


def test_rows_of_not_a_number_stay_inside_the_vocabulary_and_alone():
    requests = [request(seed=3), request(seed=3), request(temperature=0.0)]
    logits = [[math.nan] * 4, [0.0, 100.0, 0.0, 0.0], [math.nan] * 4]
    drawn = draw(logits, requests)
    assert drawn[1] == 1
    assert all(0 <= token_id < 4 for token_id in drawn)
