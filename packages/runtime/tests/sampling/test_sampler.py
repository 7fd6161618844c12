"""The sampler against the definition of each step, one row and one token at a time, and against `transformers`."""

import math
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from minivllm_kernels.reference import sample as twin
from minivllm_runtime.sampling.philox import uniforms
from minivllm_runtime.sampling.sampler import adjust, sample

from ..reference.sync_debug import waiting_is_an_error
from .rows import batch_of, request, step_of


def draw(logits, requests, outputs=None):
    logits = torch.tensor(logits)
    outputs = outputs or [()] * len(requests)
    return sample(logits, batch_of(requests, outputs, logits.shape[-1])).tolist()


def adjusted(logits, row, output):
    """Penalties, bias and bans by their definitions."""
    seen = {*row.prompt_token_ids, *output}
    bias = dict(row.logit_bias)

    def adjust(token_id, logit):
        if len(output) < row.min_tokens and token_id in row.stop_token_ids:
            return -math.inf
        if token_id in seen:
            logit = logit / row.repetition_penalty if logit > 0 else logit * row.repetition_penalty
        count = output.count(token_id)
        penalty = row.frequency_penalty * count + row.presence_penalty * (count > 0)
        return logit - penalty + bias.get(token_id, 0)

    return [adjust(token_id, logit) for token_id, logit in enumerate(logits)]


def naive(logits, row, output):
    """The definition, in double precision: kept set first, then the inverse of its cumulative distribution."""
    logits = adjusted(logits, row, output)
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
    target = uniforms([row.seed], [row.choice], [len(output)])[0] * sum(probabilities())
    cumulative = 0.0
    for token_id, probability in enumerate(probabilities()):
        cumulative += probability
        if cumulative > target:
            return token_id
    raise AssertionError("u < 1, so some token is reached")


VOCAB_SIZE = 6
token_ids = st.integers(0, VOCAB_SIZE - 1)
# Quarters and powers of two keep every threshold clear of rounding: ties are exact, neighbours are far apart.
quarters = st.integers(-20, 20).map(lambda quarter: quarter / 4)
logit_rows = st.lists(quarters, min_size=VOCAB_SIZE, max_size=VOCAB_SIZE)
rows = st.builds(
    request,
    prompt_token_ids=st.lists(token_ids, min_size=1, max_size=4).map(tuple),
    temperature=st.sampled_from([0.0, 1e-6, 0.5, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 2, 5, 6, 100]),
    top_p=st.sampled_from([0.0, 0.313, 0.777, 0.951, 1.0]),
    min_p=st.sampled_from([0.0, 0.05003, 0.4003, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.0, 0.5, 2.0]),
    presence_penalty=st.sampled_from([0.0, 0.0, -0.5, 2.0]),
    frequency_penalty=st.sampled_from([0.0, 0.0, -2.0, 0.25]),
    logit_bias=st.dictionaries(st.integers(0, VOCAB_SIZE + 3), quarters, max_size=3).map(
        lambda bias: tuple(bias.items())
    ),
    min_tokens=st.integers(0, 3),
    stop_token_ids=st.frozensets(st.integers(0, VOCAB_SIZE + 3), max_size=3),
    seed=st.integers(0, 2**64 - 1),
    choice=st.integers(0, 127),
)
outputs = st.lists(token_ids, max_size=8).map(tuple)


@given(st.lists(st.tuples(logit_rows, rows, outputs), min_size=1, max_size=5))
def test_a_batch_draws_what_the_definition_says_of_each_row(batch):
    logits, requests, generated = (list(column) for column in zip(*batch, strict=True))
    assert draw(logits, requests, generated) == [naive(*row) for row in batch]


@pytest.mark.parametrize(
    ("changes", "processors"),
    [
        ({"top_k": 7}, [TopKLogitsWarper(7)]),
        ({"top_p": 0.8}, [TopPLogitsWarper(0.8)]),
        ({"min_p": 0.1}, [MinPLogitsWarper(0.1)]),
        (
            {"repetition_penalty": 1.7, "top_k": 50, "top_p": 0.9, "min_p": 0.02},
            [
                RepetitionPenaltyLogitsProcessor(1.7),
                TopKLogitsWarper(50),
                TopPLogitsWarper(0.9),
                MinPLogitsWarper(0.02),
            ],
        ),
    ],
    ids=["top-k", "top-p", "min-p", "all"],
)
def test_the_tokens_that_can_be_drawn_are_those_transformers_keeps(changes, processors):
    generator = torch.Generator().manual_seed(1)
    prompt = tuple(torch.randint(100, (30,), generator=generator).tolist())
    logits = torch.randn(1, 100, generator=generator) * 2
    kept = LogitsProcessorList(processors)(torch.tensor([prompt]), logits.clone()) > -math.inf
    requests = [request(prompt_token_ids=prompt, seed=seed, **changes) for seed in range(4000)]
    drawn = sample(logits.repeat(4000, 1), batch_of(requests, [()] * 4000, 100))
    probabilities = LogitsProcessorList(processors)(torch.tensor([prompt]), logits.clone()).softmax(-1)[0]
    assert set(drawn.tolist()) <= set(kept[0].nonzero().flatten().tolist())
    assert set((probabilities > 0.005).nonzero().flatten().tolist()) <= set(drawn.tolist())


def test_c12_a_greedy_row_beside_a_random_one_takes_the_lowest_of_tied_ids():
    logits = [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0]]
    drawn = [
        draw(logits, [request(temperature=0.0), request(temperature=1.0, seed=5)], [(), (0,) * index])
        for index in range(200)
    ]
    assert {greedy for greedy, _ in drawn} == {0}
    assert {random for _, random in drawn} == {0, 1, 2}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_c12_tiny_temperatures_neither_overflow_nor_draw(dtype):
    logits = torch.tensor([[11.06, -11.06, 11.06, 0.0]] * 2, dtype=dtype)
    requests = [request(temperature=1e-6), request(temperature=1.0, seed=1)]
    assert sample(logits, batch_of(requests, [(), ()], 4))[0] == 0


def test_a_greedy_row_s_own_limits_matter_to_nobody():
    greedy = request(temperature=0.0, top_k=3, top_p=0.0, min_p=1.0)
    random = [request(seed=seed, top_k=2) for seed in range(50)]
    logits = [[0.0, 1.0, 0.5, 0.25]] * 51
    assert draw(logits, [greedy, *random]) == [1, *draw(logits[1:], random)]


def test_frequencies_follow_the_distribution():
    logits = torch.tensor([[0.0, math.log(2), math.log(5)]] * 8000)
    requests = [request(seed=seed) for seed in range(8000)]
    counts = sample(logits, batch_of(requests, [()] * 8000, 3)).bincount(minlength=3)
    for count, share in zip(counts.tolist(), (1 / 8, 2 / 8, 5 / 8), strict=True):
        assert abs(count / 8000 - share) < 4 * math.sqrt(share * (1 - share) / 8000)


def test_stop_ids_are_banned_until_min_tokens_also_past_the_vocabulary():
    rows = [request(temperature=0.0, min_tokens=3, stop_token_ids=frozenset({0, 2, 3, 1000}))] * 3
    assert draw([[9.0, 1.0, 5.0]] * 3, rows, [(), (1, 1), (1, 1, 1)]) == [1, 1, 0]


def test_a_bias_changes_greedy_rows_and_reaches_no_neighbour():
    plain = request(temperature=0.0)
    biased = replace(plain, logit_bias=((0, -100.0), (2, 0.5), (7, 100.0)))
    assert draw([[3.0, 1.0, 1.0]] * 3, [plain, biased, plain]) == [0, 2, 0]


def test_half_precision_keeps_small_penalties():
    logits = torch.tensor([[100.0, 100.0]], dtype=torch.bfloat16)
    assert sample(logits, batch_of([request(temperature=0.0, presence_penalty=0.01)], [(0,)], 2)) == 1


@pytest.mark.parametrize("penalty", [1e-300, 1e300])
def test_extreme_penalties_stay_finite(penalty):
    row = request(prompt_token_ids=(0, 1, 2), repetition_penalty=penalty, stop_token_ids=frozenset({0}))
    for temperature in (0.0, 0.01, 1.0):
        requests = [replace(row, temperature=temperature, min_tokens=1, seed=seed) for seed in range(20)]
        assert set(draw([[1.0, -1.0, 0.0, 0.5]] * 20, requests)) <= {1, 2, 3}


@pytest.mark.parametrize("vocab_size", [200, 300, 5000, 49152])
def test_top_p_on_a_flat_distribution_widens_its_candidates(vocab_size):
    """Half the mass of equal tokens: ties are all kept, so every id can be drawn."""
    requests = [request(top_p=0.5, seed=seed) for seed in range(64)]
    drawn = sample(torch.zeros(64, vocab_size), batch_of(requests, [()] * 64, vocab_size))
    assert drawn.max() > vocab_size // 2
    assert drawn.unique().numel() > 32


def test_top_p_past_the_first_candidates_keeps_exactly_the_smallest_set():
    vocab_size = 4096
    logits = torch.linspace(0, -1, vocab_size).repeat(256, 1)
    mass = torch.softmax(logits[0].double(), -1).cumsum(0)
    boundary = int((mass < 0.9).sum())
    requests = [request(top_p=0.9, seed=seed) for seed in range(256)]
    drawn = sample(logits, batch_of(requests, [()] * 256, vocab_size))
    assert boundary * 0.9 < drawn.max() <= boundary


def test_rows_of_not_a_number_stay_inside_the_vocabulary_and_alone():
    requests = [
        request(seed=3),
        request(seed=3),
        request(temperature=0.0),
        request(presence_penalty=1.0, top_k=2, top_p=0.5, seed=3),
    ]
    logits = [[math.nan] * 4, [0.0, 100.0, 0.0, 0.0], [math.nan] * 4, [math.nan] * 4]
    drawn = draw(logits, requests)
    assert drawn[1] == 1
    assert all(0 <= token_id < 4 for token_id in drawn)


def drawn_from_states(op, logits, requests, outputs):
    """Ids that an op of the kernels draws of adjusted logits by what the request states say."""
    device = logits.device
    batch, states = step_of(requests, outputs, logits.shape[-1], device)
    lens = [len(row.prompt_token_ids) + len(output) for row, output in zip(requests, outputs, strict=True)]
    slots, places = torch.arange(len(lens), device=device), torch.tensor(lens, device=device)
    with waiting_is_an_error() if device.type == "cuda" else nullcontext():
        drawn = op(adjust(logits, batch), states.token_ids, slots, places, states.sampling)
    known = states.token_ids[slots, places]
    assert torch.equal(drawn, known)
    return drawn.tolist()


@given(st.lists(st.tuples(logit_rows, rows, outputs), min_size=1, max_size=5))
def test_the_kernels_twin_draws_the_same(rows):
    logits, requests, generated = (list(column) for column in zip(*rows, strict=True))
    drawn = drawn_from_states(twin.sample, torch.tensor(logits), requests, generated)
    assert drawn == draw(logits, requests, generated)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@given(st.lists(st.tuples(logit_rows, rows, outputs), min_size=1, max_size=5))
def test_a_cuda_device_draws_the_same_and_is_never_waited_for(rows):
    from minivllm_kernels.sample import sample as draw_on_cuda

    logits, requests, generated = (list(column) for column in zip(*rows, strict=True))
    on_device = torch.tensor(logits, device="cuda")
    drawn = drawn_from_states(draw_on_cuda, on_device, requests, generated)
    assert drawn == draw(logits, requests, generated)
