"""Sampling parameters and token ids at and past their bounds: C12, C14, C16."""

import json

import pytest

from .byte_tokens import EOS, byte_tokenizer, ids_of
from .harness import NUM_PADDED_ROWS, PATH
from .wire_client import expect_error

SERVER = {"context": 512, "max_num_waiting": 1024}
FIRST_PADDED = byte_tokenizer().vocab_size
NUM_ROWS = FIRST_PADDED + NUM_PADDED_ROWS
TIE = {ord("b"): 10.0, ord("a"): 10.0}
CLOSE = {ord("b"): 10.0, ord("a"): 9.9}


def post_text(server, body):
    """Posts JSON that httpx would not write."""
    return server.client.post(PATH, content=body, headers={"content-type": "application/json"})


def text(server, **fields):
    return server.choice(max_tokens=40, **fields)["text"]


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0},
        {"temperature": 1e-6},
        {"temperature": 9e-6, "seed": 1},
        {"temperature": 0, "top_p": 0.9},
        {"temperature": 0, "top_k": 2, "min_p": 0.5},
        {"temperature": 0, "top_p": 0},
        {"temperature": 0, "seed": 5},
    ],
)
def test_next_to_no_temperature_is_greedy_and_ties_go_to_the_lowest_id(server, fields):
    server.play([TIE])
    assert text(server, **fields) == "a" * 40


@pytest.mark.parametrize("temperature", [1e-5, 2e-5, 1e-4, 0.01])
def test_a_low_temperature_does_not_overflow(server, temperature):
    server.play([{ord("a"): 3e4, ord("b"): -3e4}])
    assert text(server, temperature=temperature) == "a" * 40


def test_a_greedy_row_is_greedy_among_random_ones(server):
    server.play([TIE])
    random = {"temperature": 1, "max_tokens": 60, "n": 4}
    with server.stream(**random, seed=1) as one, server.stream(**random, seed=2) as two:
        assert text(server) == "a" * 40
        list(one), list(two)
    assert {letter for stream in (one, two) for i in range(4) for letter in stream.text(i)} == {"a", "b"}


@pytest.mark.parametrize(
    "fields", [{"top_k": 1}, {"top_p": 0}, {"min_p": 1}, {"top_p": 0.4}, {"min_p": 0.95}]
)
def test_filters_leave_the_top_token(server, fields):
    server.play([CLOSE])
    assert text(server, temperature=1, **fields) == "b" * 40


@pytest.mark.parametrize(
    "fields", [{}, {"top_k": 0}, {"top_k": -1}, {"top_k": 10**7}, {"top_p": 1}, {"min_p": 0}, {"top_k": 2}]
)
def test_filters_that_are_off_leave_all(server, fields):
    server.play([CLOSE])
    assert set(text(server, temperature=2, seed=3, **fields)) == {"a", "b"}


def test_equal_seeds_give_equal_texts_and_choices_differ(server):
    server.play([TIE])
    body = {"temperature": 1, "n": 3, "max_tokens": 40, "seed": 2**63 - 1}
    first, second = (
        [choice["text"] for choice in server.complete(**body).json()["choices"]] for _ in range(2)
    )
    assert first == second
    assert len(set(first)) == 3
    assert text(server, temperature=1, seed=-(2**63)) != first[0]


def test_without_a_seed_texts_differ(server):
    server.play([TIE])
    assert text(server, temperature=1) != text(server, temperature=1)


def test_the_default_temperature_is_one(server):
    server.play([TIE])
    assert set(text(server, temperature=None)) == {"a", "b"}


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("temperature", [0, 1, 2, 2.0, 1e-300]),
        ("top_p", [1, 0, 0.5, 1.0]),
        ("top_k", [0, -1, 1, 9999999]),
        ("min_p", [0, 1, 0.5]),
        ("seed", [0, -1, 2**63 - 1, -(2**63)]),
        ("n", [1, 128]),
        ("min_tokens", [0, 2]),
        ("stop", ["x", [], ["a", "b", "c", "d"]]),
        ("stop_token_ids", [[], [0, EOS, NUM_ROWS - 1]]),
        ("ignore_eos", [True, False]),
        ("max_tokens", [1, 511]),
    ],
)
def test_values_within_their_bounds_are_taken(server, field, values):
    for value in values:
        answer = server.complete(**{"max_tokens": 2, field: value})
        assert answer.status_code == 200, (value, answer.text)


REFUSED = {
    "temperature": [-1, -1e-9, 2.1, True, "1", [1], {}, 10**400],
    "top_p": [-1, -0.001, 1.1, True, "0.5"],
    "top_k": [-2, 0.01, 1.5, True, "1", []],
    "min_p": [-0.1, 1.1, False, "0"],
    "seed": [2**70, -(2**70), 1.5, True, "7"],
    "n": [0, -1, 129, 1000000, 2**70, 1.5, True, "1"],
    "max_tokens": [0, -1, -5, 1.5, True, "5", 2**70],
    "min_tokens": [-1, 3, 1.5, True, "1"],
    "stop": ["", [""], ["a", ""], ["a", "b", "c", "d", "e"], 5, [5], {"a": 1}, [["a"]], [None]],
    "stop_token_ids": [[-1], [NUM_ROWS], [999999], [2**70], [1.5], [True], ["1"], 5, "5", [[1]], [None]],
    "ignore_eos": [1, "yes", "true", []],
    "skip_special_tokens": [0, "no"],
    "include_stop_str_in_output": [1, "x"],
    "stream": [1, 0, "true", []],
    "cache_salt": [5, ["a"], "s" * 257],
    "priority": [1.5, "1", True],
    "best_of": [2],
    "structured_outputs": [{"choice": ["a", "b"]}],
    "guided_regex": ["a+"],
    "bad_words": [["a"]],
    "allowed_token_ids": [[97]],
    "use_beam_search": [True],
    "response_format": [5, {}, {"type": "xml"}, {"type": "json_schema"}],
    "suffix": ["x"],
    "model": [5, ["scripted"], True],
}


@pytest.mark.parametrize(("field", "values"), REFUSED.items())
def test_values_past_their_bounds_are_refused_with_the_name_and_harm_nobody(server, field, values):
    for value in values:
        body = json.dumps({"prompt": "a", "max_tokens": 2, field: value})
        error = expect_error(post_text(server, body), 400)
        assert field in error["message"], (value, error)
        assert error["param"] is None or error["param"].startswith(field), (value, error)
        assert server.works()


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
@pytest.mark.parametrize("field", ["temperature", "top_p", "min_p", "top_k", "seed", "max_tokens"])
def test_numbers_that_are_none_are_refused(server, field, literal):
    body = f'{{"prompt": "a", "max_tokens": 2, "{field}": {literal}}}'
    expect_error(post_text(server, body), 400)
    assert server.works()


@pytest.mark.parametrize("options", [5, "x", [], True, {"include_usage": 1}, {"include_usage": "true"}])
def test_stream_options_of_a_wrong_type_are_refused(server, options):
    expect_error(server.complete(stream=True, stream_options=options), 400)
    assert server.works()


@pytest.mark.parametrize("options", [{}, {"include_usage": True}, {"include_usage": False}])
@pytest.mark.parametrize("stream", [{}, {"stream": False}, {"stream": None}])
def test_stream_options_without_a_stream_are_refused(server, stream, options):
    assert "stream" in expect_error(server.complete(**stream, stream_options=options), 400)["message"]
    assert server.works()


BAD_PROMPTS = [
    [-1],
    [999999],
    [NUM_ROWS],
    [2**70],
    [[1, 2], [999999]],
    [[1], [-1]],
    [[1, 2], [3, -(2**40)]],
    [1.5],
    [True],
    ["a", 1],
    [1, "a"],
    [[1], "a"],
    ["a", [1]],
    [None],
    ["a", None],
    [[None]],
    [[[1]]],
    {},
    {"a": 1},
    5,
    True,
    None,
]


def test_bad_prompts_and_ids_are_refused_while_a_stream_goes_on_unchanged(server):
    server.play(ids_of(*"the quick brown fox jumps over the lazy dog. " * 10), prompt_len=3)
    body = {"prompt": "xyz", "max_tokens": 400}
    expected = server.choice(**body)["text"]
    server.model.pace.hold()
    server.model.pace.allow(1)
    with server.stream(**body) as stream:
        stream.read_until(expected[:1])
        for prompt in BAD_PROMPTS:
            expect_error(server.complete(prompt=prompt), 400)
        for token_id in (-1, NUM_ROWS, 999999):
            expect_error(server.complete(stop_token_ids=[token_id], min_tokens=1), 400)
        assert stream.text() == expected[:1]
        assert server.engine.stats().num_waiting == 0
        server.model.pace.release()
        list(stream)
    assert stream.text() == expected


def test_ids_are_bounded_by_the_embedding_not_by_the_tokenizer(server):
    server.play(ids_of("ab"))
    for token_id in (0, EOS, FIRST_PADDED, NUM_ROWS - 1):
        assert text(server, prompt=[token_id])[:2] == "ab"
        assert text(server, stop_token_ids=[token_id])[:2] == "ab"


@pytest.mark.parametrize("temperature", [0, 1])
def test_padded_rows_are_never_sampled(server, temperature):
    server.play([{FIRST_PADDED: 100.0, NUM_ROWS - 1: 100.0, ord("a"): 0.0}])
    assert text(server, temperature=temperature) == "a" * 40


@pytest.mark.parametrize("prompt", ["\ud800", "a\udfffb", ["a", "\ud83d"], "\ude00\ud83d"])
def test_a_lone_surrogate_in_a_prompt_is_refused(server, prompt):
    for stream in (False, True):
        expect_error(post_text(server, json.dumps({"prompt": prompt, "stream": stream})), 400)
    assert server.works()


@pytest.mark.parametrize(
    "fields", [{"stop": "\ud800"}, {"stop": ["a", "\udc00"]}, {"cache_salt": "\ud800"}, {"model": "\ud800"}]
)
def test_a_lone_surrogate_elsewhere_breaks_nothing(server, fields):
    assert post_text(server, json.dumps({"prompt": "a", **fields})).status_code in {200, 400, 404}
    assert server.works()


def test_a_body_that_is_not_sent_as_json_is_told_so(server):
    answer = server.client.post(PATH, content='{"prompt": "a"}', headers={"content-type": "text/plain"})
    assert answer.status_code == 400
    assert "Content-Type: application/json" in answer.json()["error"]["message"]
