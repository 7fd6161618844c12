from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from minivllm_bench.soak.cases import Case, CaseLimits, Kind, draw_cases


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 300), st.integers(1, 60), st.integers())
def test_cases_are_within_their_limits_and_repeatable(num_cases, vocab_size, input_len, output_len, seed):
    limits = CaseLimits(num_cases, vocab_size, input_len, output_len)
    cases = draw_cases(limits, seed)
    assert len(cases) == num_cases
    for case in cases:
        assert 1 <= len(case.prompt_token_ids) <= input_len
        assert set(case.prompt_token_ids) <= set(range(vocab_size))
        assert 1 <= case.max_tokens <= output_len
    assert cases == draw_cases(limits, seed)


def test_cases_are_of_all_kinds_and_some_share_a_beginning():
    cases = draw_cases(CaseLimits(200, 1000, 256, 64), seed=0)
    assert {case.num_choices for case in cases} == {1, 2}
    assert {case.ignore_eos for case in cases} == {True, False}
    assert {case.kind for case in cases} == set(Kind)
    doublings = Counter(len(case.prompt_token_ids).bit_length() for case in cases)
    assert min(doublings[bits] for bits in range(1, 9)) >= 10
    heads = Counter(case.prompt_token_ids[:16] for case in cases if len(case.prompt_token_ids) > 16)
    assert max(heads.values()) > 1
    assert draw_cases(CaseLimits(200, 1000, 256, 64), seed=1) != cases


def test_a_chat_has_fewer_words_than_the_prompt_has_tokens():
    case = Case(tuple(range(17)), 3, ignore_eos=True, num_choices=1, kind=Kind.CHAT)
    body = case.body("m", stream=False, cache_salt=None)
    assert body["messages"] == [{"role": "user", "content": "0 8 16"}]
    assert "prompt" not in body


def test_a_body_is_greedy_and_asks_for_usage_only_in_a_stream():
    case = Case((1, 2), 3, ignore_eos=True, num_choices=2)
    whole = case.body("m", stream=False, cache_salt="s")
    assert {
        "model": "m",
        "prompt": (1, 2),
        "max_tokens": 3,
        "temperature": 0,
        "n": 2,
    }.items() <= whole.items()
    assert whole["ignore_eos"] is True
    assert whole["cache_salt"] == "s"
    assert "stream_options" not in whole
    stream = case.body("m", stream=True, cache_salt=None)
    assert stream["stream"] is True
    assert stream["stream_options"] == {"include_usage": True}
