"""The shape of answers and streams: C24, C25 and the rows of WIRE.md around them."""

import pytest

from .byte_tokens import BOS, EOS, byte_tokenizer, ids_of
from .wire_client import expect_error

SERVER = {"context": 128}
USAGE = {"prompt_tokens", "completion_tokens", "total_tokens"}


def different_ends(server, **body):
    """A body with two choices that end in different ways: one draws EOS at once, the other never."""
    server.play([{EOS: 10.0, ord("a"): 10.0}, ord("b"), ord("c")])
    body |= {"n": 2, "temperature": 1, "max_tokens": 3}
    for seed in range(50):
        choices = server.complete(**body, seed=seed).json()["choices"]
        if len({choice["finish_reason"] for choice in choices}) == 2:
            return body | {"seed": seed}, choices
    raise AssertionError("fifty seeds drew alike twice")


def test_a_whole_answer(server):
    server.play(ids_of("hello"))
    answer = server.complete(max_tokens=5, model="scripted")
    body = answer.json()
    assert answer.headers["content-type"].startswith("application/json")
    assert body["object"] == "text_completion"
    assert body["id"].startswith("cmpl-")
    assert isinstance(body["created"], int)
    assert body["model"] == "scripted"
    (choice,) = body["choices"]
    assert (choice["index"], choice["text"], choice["finish_reason"]) == (0, "hello", "length")
    assert choice["logprobs"] is None
    assert {key: body["usage"][key] for key in USAGE} == {
        "prompt_tokens": 1,
        "completion_tokens": 5,
        "total_tokens": 6,
    }


def test_json_is_ascii(server):
    server.play(ids_of("\u2028é😀"))
    answer = server.complete(max_tokens=9)
    assert answer.content.isascii()
    assert answer.json()["choices"][0]["text"] == "\u2028é😀"


def test_every_answer_has_its_own_id(server):
    ids = {server.complete(max_tokens=1).json()["id"] for _ in range(3)}
    ids |= {chunk["id"] for chunk in server.stream(max_tokens=1).read_all().chunks}
    assert len(ids) == 4


@pytest.mark.parametrize("n", [1, 3])
def test_a_stream_has_one_id_one_time_and_one_object(server, n):
    server.play(ids_of("hello"))
    stream = server.stream(n=n, max_tokens=5, stream_options={"include_usage": True}).read_all()
    assert stream.is_done
    identities = {(c["id"], c["created"], c["model"], c["object"]) for c in stream.chunks}
    assert len(identities) == 1
    (identity,) = identities
    assert identity[0].startswith("cmpl-")
    assert identity[2:] == ("scripted", "text_completion")
    assert [stream.text(index) for index in range(n)] == ["hello"] * n


@pytest.mark.parametrize(
    ("script", "fields", "reason", "num_tokens"),
    [
        (ids_of("abcdef"), {}, "length", 3),
        (ids_of("a", EOS, "b"), {}, "stop", 2),
        (ids_of("ab", EOS), {}, "stop", 2),
        (ids_of("a", "b", EOS), {}, "stop", 3),
        (ids_of(EOS), {}, "stop", 1),
        (ids_of("abcd"), {"stop": "bc"}, "stop", 3),
        (ids_of("abcd"), {"stop": "a"}, "stop", 1),
        (ids_of("abcd"), {"stop_token_ids": ids_of("c")}, "stop", 3),
        (ids_of("a", EOS, "b"), {"ignore_eos": True}, "length", 3),
    ],
)
def test_finish_reasons_and_usage(server, script, fields, reason, num_tokens):
    server.play(script)
    answer = server.complete(max_tokens=3, **fields).json()
    assert answer["choices"][0]["finish_reason"] == reason
    assert answer["usage"]["completion_tokens"] == num_tokens
    stream = server.stream(max_tokens=3, **fields).read_all()
    assert stream.is_done
    *before, last = stream.finish_reasons()
    assert last == reason
    assert set(before) <= {None}
    assert stream.text() == answer["choices"][0]["text"]


def test_choices_may_end_in_different_ways(server):
    body, choices = different_ends(server)
    stream = server.stream(**body).read_all()
    assert stream.is_done
    for index, choice in enumerate(choices):
        *before, last = stream.finish_reasons(index)
        assert last == choice["finish_reason"]
        assert set(before) <= {None}
        assert stream.text(index) == choice["text"]
    assert {choice["finish_reason"]: choice["text"] for choice in choices} == {"stop": "", "length": "abc"}


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_usage": None}])
def test_no_usage_unless_asked_for(server, options):
    stream = server.stream(max_tokens=3, stream_options=options).read_all()
    assert stream.is_done
    assert all(len(chunk["choices"]) >= 1 for chunk in stream.chunks)
    assert all(chunk.get("usage") is None for chunk in stream.chunks)


def test_no_usage_by_default(server):
    stream = server.stream(max_tokens=3).read_all()
    assert all(chunk["choices"] and chunk.get("usage") is None for chunk in stream.chunks)


@pytest.mark.parametrize(
    "fields", [{}, {"n": 2}, {"prompt": ["a", "b"]}, {"prompt": [[1], [2]], "n": 3}, {"unequal": True}]
)
def test_the_usage_chunk_comes_last_and_equals_the_whole_answers(server, fields):
    server.play(ids_of("abcdef"))
    if "unequal" in fields:
        fields, _ = different_ends(server)
    body = {"max_tokens": 4, **fields}
    usage = server.complete(**body).json()["usage"]
    stream = server.stream(**body, stream_options={"include_usage": True}).read_all()
    assert stream.is_done
    *chunks, last = stream.chunks
    assert last["choices"] == []
    assert {key: last["usage"][key] for key in USAGE} == {key: usage[key] for key in USAGE}
    assert all(chunk["choices"] and chunk["usage"] is None for chunk in chunks)


def test_the_prompt_counts_once_and_completions_are_summed(server):
    server.play(ids_of("ab", EOS), prompt_len=2)
    usage = server.complete(prompt=["pq", "pq", "pq"], n=2, max_tokens=9).json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (6, 12, 18)


def test_cached_tokens_are_reported_and_a_salt_hides_them(server):
    body = {"prompt": "cached tokens", "max_tokens": 1}  # 13 tokens, 3 whole blocks before the last one

    def num_cached(**fields):
        usage = server.complete(**body, **fields).json()["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    assert [num_cached(), num_cached(), num_cached(cache_salt="mine")] == [0, 12, 0]
    stream = server.stream(**body, stream_options={"include_usage": True}).read_all()
    assert stream.chunks[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 12


@pytest.mark.parametrize(
    ("prompt", "texts", "num_prompt_tokens"),
    [
        ("x", ["ab"], 1),
        (["x"], ["ab"], 1),
        ([5], ["ab"], 1),
        ([[5]], ["ab"], 1),
        ("xx", ["bc"], 2),
        ([5, 6, 7], ["cd"], 3),
        (["xxx", "x", "xx"], ["cd", "ab", "bc"], 6),
        ([[1, 2, 3], [1], [1, 2]], ["cd", "ab", "bc"], 6),
        ("é", ["bc"], 2),
        ("<|begin|>", ["ab"], 1),
        ([BOS], ["ab"], 1),
        ("", ["ab"], 1),
        ([], ["ab"], 1),
        ([""], ["ab"], 1),
        ([[], [1, 2]], ["ab", "bc"], 3),
    ],
)
@pytest.mark.parametrize("n", [1, 2])
def test_choices_are_prompt_major(server, prompt, texts, num_prompt_tokens, n):
    server.play(ids_of("abcdef"))
    body = {"prompt": prompt, "n": n, "max_tokens": 2}
    answer = server.complete(**body).json()
    expected = [text for text in texts for _ in range(n)]
    assert [choice["index"] for choice in answer["choices"]] == list(range(len(expected)))
    assert [choice["text"] for choice in answer["choices"]] == expected
    assert answer["usage"]["prompt_tokens"] == num_prompt_tokens
    stream = server.stream(**body).read_all()
    assert [stream.text(index) for index in range(len(expected))] == expected
    assert all(stream.finish_reasons(index)[-1] == "length" for index in range(len(expected)))


def test_an_empty_prompt_needs_a_bos(launch):
    server = launch(tokenizer=byte_tokenizer(has_bos=False))
    for prompt in ("", [], [""], ["a", ""], [[]]):
        expect_error(server.complete(prompt=prompt), 400)
    assert server.works()
