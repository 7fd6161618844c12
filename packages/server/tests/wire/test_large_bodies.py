"""Long prompts stall nobody, and a body of 50 MB is refused: C33."""

import asyncio
import json
import time

import pytest

from .byte_tokens import LONG_PIECE, PIECES, byte_tokenizer, ids_of
from .harness import CHAT_PATH, PATH
from .wire_client import expect_error

SERVER = {"context": 40_000, "block_size": 64}
LONGEST_STALL_S = 0.5
NUM_TRIES = 3
CALL = {"id": "", "function": {"name": "", "arguments": ""}}


class LoopWatch:
    """Measures, while it is entered, for how long a server's event loop computes without seeing to anything else.

    Its thread's CPU time is what counts: what this system does besides takes none of it.

    Attributes:
        longest_stall_s: CPU seconds.
    """

    INTERVAL_S = 0.005

    def __init__(self, server) -> None:
        self.longest_stall_s = 0.0
        self._loop = server.loop
        self._is_over = False

    def __enter__(self):
        self._watching = asyncio.run_coroutine_threadsafe(self._watch(), self._loop)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._is_over = True
        self._watching.result(30)

    async def _watch(self) -> None:
        while not self._is_over:
            before_s = time.thread_time()
            await asyncio.sleep(self.INTERVAL_S)
            self.longest_stall_s = max(self.longest_stall_s, time.thread_time() - before_s)


def is_short(stall_s):
    """Whether nobody minds: on a slow or busy machine, what the standard library takes there for 6 MB of JSON."""
    if stall_s < LONGEST_STALL_S:
        return True
    text = "[" + "[]," * 2_000_000 + "[]]"
    before_s = time.thread_time()
    json.loads(text)
    return stall_s < time.thread_time() - before_s


def post_without_a_stall(server, path, body):
    """The answer to a body that stalls nobody; if it seems to, it may have been a neighbour of the whole machine."""
    for _ in range(NUM_TRIES):
        with LoopWatch(server) as watch:
            answer = server.client.post(path, content=body, headers={"content-type": "application/json"})
        if is_short(watch.longest_stall_s):
            return answer
    raise AssertionError(f"everybody waits for {watch.longest_stall_s:.2f} s")


def refuse_beside_others(server, prompts):
    """The answers to `prompts`, posted at once while a stream is read and /health asked for; nobody stalls."""
    with server.stream(max_tokens=39_000) as stream, LoopWatch(server) as watch:
        next(iter(stream))
        posted = [server.in_background(prompt=prompt) for prompt in prompts]
        while any(post.is_alive() for post in posted):
            next(iter(stream))
            assert server.client.get("/health").status_code == 200
        next(iter(stream))
    assert is_short(watch.longest_stall_s)
    return [post.join_answer() for post in posted]


def test_what_cannot_fit_is_refused_unencoded(server):
    prompts = ("a " * 2_500_000, "😀" * 1_250_000, ["x", "y" * 5_000_000])
    for answer in refuse_beside_others(server, prompts):
        assert "40000" in expect_error(answer, 400)["message"]
    assert server.works()


def test_what_might_fit_is_tokenized_beside_everything_else(launch):
    # One token is so long that only encoding tells whether these prompts fit.
    server = launch(**SERVER, tokenizer=byte_tokenizer((*PIECES, LONG_PIECE)))
    prompts = ("a " * 2_000_000, "b " * 1_000_000)
    for prompt, answer in zip(prompts, refuse_beside_others(server, prompts), strict=True):
        assert str(len(prompt)) in expect_error(answer, 400)["message"]
    assert server.works()


def test_many_prompts_are_tokenized_at_once(server):
    server.play(ids_of("abcdefgh" * 10), prompt_len=1000)
    lengths = range(1000, 1020)
    posts = [server.in_background(prompt=chr(97 + n % 26) * n, max_tokens=3) for n in lengths]
    for length, post in zip(lengths, posts, strict=True):
        answer = post.join_answer().json()
        assert answer["usage"]["prompt_tokens"] == length
        assert answer["choices"][0]["text"] == ("abcdefgh" * 10)[length - 1000 :][:3]


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": [1] * 2_500_000 + ["a"]},
        {"stop": [5] * 2_500_000},
        {"stop_token_ids": [""] * 2_500_000},
        {"logit_bias": dict.fromkeys(map(str, range(500_000)), "")},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_many_wrong_entries_stall_nobody(server, fields):
    body = json.dumps({"prompt": "a", **fields}, separators=(",", ":"))
    answer = post_without_a_stall(server, PATH, body)
    expect_error(answer, 400)
    assert server.works()


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "user", "content": "a" * 5_000_000}]},
        {"messages": [5] * 500_000},
        {"messages": [{}] * 500_000},
        {"messages": [{"role": "user", "content": "a"}] * 100_000},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * 100_000}]},
        {"messages": [{"role": "assistant", "tool_calls": [{}] * 2_700_000}]},
        {"messages": [{"role": "assistant", "tool_calls": [{}] * 16_000}] * 160},
        {"messages": [{"role": "assistant", "tool_calls": [{}] * 16_000}]},
        {"messages": [{"role": "assistant", "tool_calls": [CALL] * 120}] * 1000},
        {"tools": [{}] * 500_000},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"a": [[]] * 500_000}}}]},
        {
            "tools": [
                {"type": "function", "function": {"name": f"f{n}", "parameters": {"a": [[]] * 9900}}}
                for n in range(128)
            ],
            "tool_choice": "required",
        },
        {"tool_choice": ["x"] * 500_000},
        {"response_format": {"type": "json_object"}, "stop": [5] * 500_000},
    ],
    ids=lambda fields: json.dumps(fields)[:70],
)
@pytest.mark.parametrize("path", [CHAT_PATH, "/tokenize"])
def test_large_conversations_stall_nobody(server, path, fields):
    body = json.dumps(
        {"messages": [{"role": "user", "content": "a" * 50_000}], **fields}, separators=(",", ":")
    )
    answer = post_without_a_stall(server, path, body)
    if path == CHAT_PATH or "messages" in fields:
        expect_error(answer, 400)
    assert server.works()


def test_arguments_of_a_call_are_decoded_beside_everything_else(server):
    call = {"id": "", "function": {"name": "", "arguments": "[" + "[]," * 2_700_000 + "[]]"}}
    messages = [{"role": "assistant", "content": "a", "tool_calls": [call]}]
    answer = post_without_a_stall(server, "/tokenize", json.dumps({"messages": messages}))
    assert answer.status_code == 200
    assert server.works()


def test_a_body_of_50_mb_is_refused(server):
    body = b'{"prompt": "' + b"a" * 50_000_000 + b'"}'
    answer = post_without_a_stall(server, PATH, body)
    expect_error(answer, 413)
    assert server.works()
