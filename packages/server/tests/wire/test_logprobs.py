"""Log-probabilities in both shapes, echo, penalties and bias."""

import math

import httpx
import openai
import pytest

from .byte_tokens import EOS, ids_of
from .harness import CONVERSATION
from .wire_client import expect_error

SERVER = {"context": 64}
A, B, C = ids_of("abc")
EVEN = {A: 10.0, B: 10.0}
"""Two tokens of equal probability; all others have next to none."""
LOG_HALF = pytest.approx(math.log(0.5))


def joined(stream, name):
    """One list of a stream's log-probabilities, from all its chunks."""
    return [value for choice in stream.choices(0) for value in choice["logprobs"][name]]


class TestCompletions:
    def test_nothing_is_shown_unless_asked_for(self, server):
        server.play([EVEN])
        assert server.choice(max_tokens=2)["logprobs"] is None

    @pytest.mark.parametrize("num", [0, 1, 2, 5])
    def test_the_chosen_token_and_the_most_probable_ones(self, server, num):
        server.play([{C: 10.0, B: 9.0, A: 8.0}])
        logprobs = server.choice(max_tokens=1, logprobs=num, logit_bias={str(A): 100})["logprobs"]
        assert logprobs["tokens"] == ["a"]
        (chosen,) = logprobs["token_logprobs"]
        assert chosen == pytest.approx(8 - math.log(math.exp(10) + math.exp(9) + math.exp(8)), abs=1e-4)
        (top,) = logprobs["top_logprobs"]
        assert top["a"] == chosen
        assert list(top)[:2] == {0: ["a"], 1: ["c", "a"]}.get(num, ["c", "b"])
        assert len(top) == {0: 1, 1: 2}.get(num, max(num, 3))
        assert logprobs["text_offset"] == [0]

    def test_lists_go_on_through_a_stream(self, server):
        server.play(ids_of("h\u00e9\U0001f600", EOS))
        body = {"max_tokens": 9, "logprobs": 1}
        whole = server.choice(**body)["logprobs"]
        stream = server.stream(**body).read_all()
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            assert joined(stream, name) == whole[name]
        assert whole["text_offset"] == [0, 1, 1, 2, 2, 2, 2, 3]
        assert len(whole["tokens"]) == 8

    @pytest.mark.parametrize("temperature", [0, 0.5, 2])
    def test_they_are_of_the_raw_logits(self, server, temperature):
        server.play([EVEN])
        body = {"temperature": temperature, "top_k": 1, "presence_penalty": 1, "logprobs": 1, "max_tokens": 3}
        assert server.choice(**body)["logprobs"]["token_logprobs"] == [LOG_HALF] * 3

    @pytest.mark.parametrize("stop", ["lo", "l"])
    def test_they_end_with_the_token_that_completes_a_stop_string(self, server, stop):
        server.play(ids_of("hello"))
        choice = server.choice(max_tokens=5, logprobs=0, stop=stop)
        assert "".join(choice["logprobs"]["tokens"]) == "hello"[: 5 if stop == "lo" else 3]

    @pytest.mark.parametrize("num", [6, -1, 1.5, True, "1"])
    def test_out_of_range(self, server, num):
        assert expect_error(server.complete(logprobs=num), 400)["param"] == "logprobs"


class TestEcho:
    @pytest.mark.parametrize("prompt", ["ab", [A, B]])
    @pytest.mark.parametrize("stream", [True, False])
    def test_the_prompt_comes_first_once_per_choice(self, server, prompt, stream):
        server.play(ids_of("cd"), prompt_len=2)
        body = {"prompt": prompt, "echo": True, "max_tokens": 2, "n": 2}
        if stream:
            answer = server.stream(**body).read_all()
            texts = [answer.text(index) for index in range(2)]
        else:
            texts = [choice["text"] for choice in server.complete(**body).json()["choices"]]
        assert texts == ["abcd", "abcd"]

    def test_every_prompt_is_its_own(self, server):
        server.play(ids_of("."))
        answer = server.complete(prompt=["a", "b"], n=2, echo=True, max_tokens=1).json()
        assert [choice["text"] for choice in answer["choices"]] == ["a.", "a.", "b.", "b."]

    @pytest.mark.parametrize("stream", [True, False])
    def test_with_logprobs_the_first_is_null(self, server, stream):
        server.play([EVEN, EVEN, *ids_of("cd")])
        body = {"prompt": "aab", "echo": True, "max_tokens": 2, "logprobs": 1, "n": 2}
        if stream:
            answer = server.stream(**body).read_all()
            logprobs = {
                name: joined(answer, name)
                for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")
            }
        else:
            first, second = server.complete(**body).json()["choices"]
            logprobs = first["logprobs"]
            assert second["logprobs"] == logprobs
        assert logprobs["tokens"] == ["a", "a", "b", "c", "d"]
        assert logprobs["token_logprobs"][0] is None
        assert logprobs["token_logprobs"][1:3] == [LOG_HALF, LOG_HALF]
        assert logprobs["top_logprobs"][0] is None
        assert logprobs["text_offset"] == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize("stream", [True, False])
    @pytest.mark.parametrize("num", [None, 1])
    def test_no_tokens_score_the_prompt(self, server, stream, num):
        server.play([EVEN])
        body = {"prompt": "ab", "echo": True, "max_tokens": 0, "logprobs": num}
        if stream:
            answer = server.stream(**body).read_all()
            assert answer.text() == "ab"
            assert answer.finish_reasons()[-1] == "length"
            return
        answer = server.complete(**body).json()
        (choice,) = answer["choices"]
        assert (choice["text"], choice["finish_reason"]) == ("ab", "length")
        assert answer["usage"]["completion_tokens"] == 0
        if num is None:
            assert choice["logprobs"] is None
        else:
            assert choice["logprobs"]["token_logprobs"] == [None, LOG_HALF]

    def test_a_prompt_that_fills_the_context_can_be_scored(self, server):
        answer = server.complete(prompt="a" * 64, echo=True, max_tokens=0, logprobs=0).json()
        assert len(answer["choices"][0]["logprobs"]["tokens"]) == 64

    def test_no_tokens_without_echo_are_400(self, server):
        expect_error(server.complete(max_tokens=0), 400)
        expect_error(server.complete(max_tokens=0, echo=False), 400)

    @pytest.mark.parametrize("prompt", [[10**6], [A] * 65, "a" * 65])
    def test_refusals_stay_refusals(self, server, prompt):
        expect_error(server.complete(prompt=prompt, echo=True), 400)


class TestChat:
    @pytest.mark.parametrize("fields", [{}, {"logprobs": False}, {"logprobs": None}])
    def test_nothing_is_shown_unless_asked_for(self, server, fields):
        assert server.chat_choice(max_tokens=1, **fields)["logprobs"] is None

    @pytest.mark.parametrize("num", [None, 0, 2, 20])
    def test_every_token_has_its_bytes(self, server, num):
        server.play(ids_of("\u00e9", EOS))
        logprobs = server.chat_choice(max_tokens=5, logprobs=True, top_logprobs=num)["logprobs"]
        assert [token["bytes"] for token in logprobs["content"]] == [
            [0xC3],
            [0xA9],
            list(b"<|endoftext|>"),
        ]
        for token in logprobs["content"]:
            assert token["logprob"] == pytest.approx(0, abs=1e-6)
            assert len(token["top_logprobs"]) == (num or 0)
            assert all(set(top) == {"token", "logprob", "bytes"} for top in token["top_logprobs"])

    def test_they_go_on_through_a_stream(self, server):
        server.play(ids_of("h\u00e9\U0001f600", EOS))
        body = {"max_tokens": 9, "logprobs": True, "top_logprobs": 1}
        whole = server.chat_choice(**body)["logprobs"]["content"]
        stream = server.chat_stream(**body).read_all()
        pieces = [choice["logprobs"] for choice in stream.choices(0)[1:]]
        assert [token for piece in pieces for token in piece["content"]] == whole

    @pytest.mark.parametrize(
        "fields",
        [
            {"logprobs": True, "top_logprobs": 21},
            {"logprobs": True, "top_logprobs": -1},
            {"logprobs": 1},
            {"top_logprobs": 1},
            {"logprobs": False, "top_logprobs": 1},
        ],
    )
    def test_out_of_range(self, server, fields):
        expect_error(server.chat(**fields), 400)

    def test_the_official_client(self, server):
        server.play(ids_of("hi", EOS))
        with (
            httpx.Client(trust_env=False) as http_client,
            openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", http_client=http_client) as api,
        ):
            body = {"model": "scripted", "messages": CONVERSATION, "logprobs": True, "top_logprobs": 2}
            answer = api.chat.completions.create(**body, temperature=0)
            assert [token.token for token in answer.choices[0].logprobs.content[:2]] == ["h", "i"]
            with api.chat.completions.stream(**body, temperature=0) as stream:
                final = stream.get_final_completion()
            assert len(final.choices[0].logprobs.content) == 3


class TestPenaltiesAndBias:
    @pytest.mark.parametrize(
        ("fields", "text"),
        [
            ({}, "aaaa"),
            ({"presence_penalty": 1.5}, "abaa"),
            ({"frequency_penalty": 0.75}, "aaba"),
            ({"repetition_penalty": 1.2}, "baaa"),  # the prompt counts
            ({"logit_bias": {str(B): 1.5}}, "bbbb"),
            ({"logit_bias": {str(A): -100, str(B): -100}}, "cccc"),
            ({"presence_penalty": -2}, "aaaa"),
        ],
    )
    def test_what_they_do_to_greedy_choices(self, server, fields, text):
        server.play([{A: 10.0, B: 9.0, C: 0.0}])
        assert server.choice(max_tokens=4, **fields)["text"] == text
        assert server.chat_choice(max_tokens=4, **fields)["message"]["content"] == text

    @pytest.mark.parametrize(
        "bias",
        [
            {"999999": 5},
            {"-1": 5},
            {"abc": 1},
            {"5": 101},
            {"5": -101},
            {"5": "1"},
            {"5": True},
            {"1.0": 1},
            {"9" * 400: 1},
            [5],
            5,
        ],
        ids=lambda bias: repr(bias)[:20],
    )
    def test_a_bias_out_of_range_is_400_and_disturbs_nobody(self, server, bias):
        server.play(ids_of("."))
        with server.stream(max_tokens=60) as stream:
            next(iter(stream))
            assert expect_error(server.complete(logit_bias=bias), 400)["param"] == "logit_bias"
            list(stream)
        assert stream.text() == "." * 60
