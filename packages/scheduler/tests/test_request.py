import pytest

from minivllm_scheduler import FinishReason, InvalidRequest, Request
from minivllm_scheduler.request import RequestState, RequestStatus


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt_token_ids": []}, "'a' has 0 prompt tokens, it must have at least 1"),
        ({"prompt_token_ids": range(0)}, "0 prompt tokens"),
        ({"prompt_token_ids": [5, -1]}, "prompt ids from -1 to 5"),
        ({"prompt_token_ids": [1, 2**32]}, r"to 4294967296, they must lie in \[0, 4294967296\)"),
        ({"max_tokens": 0}, "max_tokens 0, it must be at least 1"),
    ],
)
def test_a_malformed_request_names_value_and_limit(change, message):
    with pytest.raises(InvalidRequest, match=message):
        Request(**({"request_id": "a", "prompt_token_ids": [1], "max_tokens": 1} | change))


def state_of(**options):
    return RequestState(Request(request_id="a", **options), block_size=4, arrival=0, now=0.0)


def test_the_prompt_is_kept_as_it_was_when_added():
    prompt = [1, 2, 3]
    state = state_of(prompt_token_ids=prompt, max_tokens=2)
    prompt[0] = 9
    assert tuple(state.keys.tokens()) == (1, 2, 3)


def test_known_ids_grow_by_what_was_sampled():
    state = state_of(prompt_token_ids=[1, 2, 3], max_tokens=2)
    state.num_placeholders = 1
    assert state.append(7) is None
    assert (state.num_known_tokens, state.num_prompt_tokens, state.num_placeholders) == (4, 3, 0)
    assert tuple(state.keys.tokens()) == (1, 2, 3, 7)


def test_a_request_ends_at_a_stop_id_or_at_its_length_and_stop_wins():
    options = {"prompt_token_ids": [1], "max_tokens": 2, "stop_token_ids": frozenset({5})}
    assert state_of(**options).append(5) is FinishReason.STOP
    state = state_of(**options)
    assert [state.append(4), state.append(4)] == [None, FinishReason.LENGTH]
    state = state_of(**options)
    assert [state.append(4), state.append(5)] == [None, FinishReason.STOP]


def test_the_hit_that_counts_is_that_of_the_first_admission():
    state = state_of(prompt_token_ids=[1] * 9, max_tokens=2)
    state.start_running(4)
    state.start_running(8)
    assert (state.num_cached_tokens, state.num_computed_tokens) == (4, 8)
    assert state.status is RequestStatus.RUNNING
