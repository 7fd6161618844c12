import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_bench.errors import InvalidSetting
from minivllm_bench.workloads import FIXED_WORKLOADS, Workload, find_workload
from minivllm_scheduler.simulation import UniformLength

lengths = st.tuples(st.integers(1, 40), st.integers(0, 40)).map(
    lambda pair: UniformLength(pair[0], pair[0] + pair[1])
)
workloads = st.builds(Workload, st.text(max_size=8), st.integers(1, 8), lengths, lengths)


@given(workload=workloads, vocab_size=st.integers(1, 300), seed=st.integers(), run=st.integers(0, 9))
def test_requests_have_the_lengths_and_ids_of_the_workload(workload, vocab_size, seed, run):
    requests = workload.draw(vocab_size, seed=seed, run=run)
    assert len(requests) == workload.num_requests
    for request in requests:
        assert workload.input_len.low <= len(request.prompt_token_ids) <= workload.input_len.high
        assert workload.output_len.low <= request.output_len <= workload.output_len.high
        assert all(0 <= token_id < vocab_size for token_id in request.prompt_token_ids)


@given(workload=workloads, vocab_size=st.integers(1, 300), seed=st.integers())
def test_the_same_seed_and_run_give_the_same_requests(workload, vocab_size, seed):
    before = workload.draw(vocab_size, seed=seed, run=1)
    random.seed(seed)
    assert workload.draw(vocab_size, seed=seed, run=1) == before


@given(seed=st.integers())
def test_runs_seeds_and_requests_share_no_prompt(seed):
    workload = find_workload("decode_b8")
    drawn = [
        request.prompt_token_ids
        for run_seed, run in ((seed, 0), (seed, 1), (seed + 1, 0))
        for request in workload.draw(49_152, seed=run_seed, run=run)
    ]
    assert len({prompt[:16] for prompt in drawn}) == 3 * 8


@given(count=st.integers(1, 10_000))
def test_decode_exists_for_every_batch_size(count):
    expected = Workload(f"decode_b{count}", count, UniformLength(128, 128), UniformLength(128, 128))
    assert find_workload(f"decode_b{count}") == expected


@pytest.mark.parametrize(
    ("name", "num_requests", "input_len", "output_len"),
    [
        ("seed_8x32", 8, (8, 8), (32, 32)),
        ("prefill_64x1024", 64, (1024, 1024), (1, 1)),
        ("offline_256", 256, (100, 1024), (100, 1024)),
    ],
)
def test_published_workloads_have_their_published_sizes(name, num_requests, input_len, output_len):
    assert find_workload(name) == Workload(
        name, num_requests, UniformLength(*input_len), UniformLength(*output_len)
    )


@pytest.mark.parametrize(
    "name", ["", "decode", "decode_b0", "decode_b-1", "decode_b01", "decode_b8 ", "Decode_b8"]
)
def test_unknown_names_are_refused_with_the_known_ones(name):
    with pytest.raises(InvalidSetting, match="seed_8x32") as caught:
        find_workload(name)
    assert repr(name) in str(caught.value)


def test_lengths_can_be_replaced_one_by_one():
    workload = find_workload("offline_256")
    assert workload.resized() == workload
    assert workload.resized(input_len=7).input_len == UniformLength(7, 7)
    assert workload.resized(input_len=7).output_len == workload.output_len
    assert workload.resized(output_len=9).output_len == UniformLength(9, 9)


def test_an_empty_vocabulary_is_refused():
    with pytest.raises(InvalidSetting, match="got 0"):
        FIXED_WORKLOADS[0].draw(0, seed=0, run=0)
