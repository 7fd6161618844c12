"""Long prompts stall nobody, and a body of 50 MB is refused: C33."""

import itertools
import json
import threading
import time

import httpx
import pytest

from .byte_tokens import LONG_PIECE, PIECES, byte_tokenizer, ids_of
from .harness import CHAT_PATH, PATH
from .wire_client import expect_error

SERVER = {"context": 40_000, "block_size": 64}
POLL_INTERVAL_S = 0.05
LONGEST_STALL_S = 0.5


class HealthPoller(threading.Thread):
    """Asks for /health every 50 ms while it is entered.

    Attributes:
        longest_gap_s: Between two answers, or an answer and the beginning or the end.
    """

    def __init__(self, server) -> None:
        super().__init__()
        self._url = f"{server.url}/health"
        self._over = threading.Event()
        self._times_s: list[float] = []

    def __enter__(self):
        self._times_s.append(time.monotonic())
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._times_s.append(time.monotonic())
        self._over.set()
        self.join()

    def run(self) -> None:
        with httpx.Client(trust_env=False) as client:
            while not self._over.wait(POLL_INTERVAL_S):
                assert client.get(self._url).status_code == 200
                self._times_s.append(time.monotonic())

    @property
    def longest_gap_s(self) -> float:
        return longest_gap_s(self._times_s)


def longest_gap_s(times_s):
    return max(after - before for before, after in itertools.pairwise(sorted(times_s)))


def refuse_beside_others(server, prompts):
    """The answers to `prompts`, posted at once while /health is polled and a stream is read; nobody stalls."""
    with server.stream(max_tokens=39_000) as stream, HealthPoller(server) as poller:
        next(iter(stream))
        posted = [server.in_background(prompt=prompt) for prompt in prompts]
        chunk_times_s = [time.monotonic()]
        while any(post.is_alive() for post in posted):
            next(iter(stream))
            chunk_times_s.append(time.monotonic())
        next(iter(stream))
        chunk_times_s.append(time.monotonic())
    assert longest_gap_s(chunk_times_s) < LONGEST_STALL_S
    assert poller.longest_gap_s < POLL_INTERVAL_S + LONGEST_STALL_S
    return [post.join_answer() for post in posted]


def test_what_cannot_fit_is_refused_unencoded(server):
    prompts = ("a " * 2_500_000, "😀" * 1_250_000, ["x", "y" * 5_000_000])
    for answer in refuse_beside_others(server, prompts):
        assert "40000" in expect_error(answer, 400)["message"]
    assert server.works()


def test_what_might_fit_is_tokenized_beside_everything_else(launch):
    # One token is so long that only encoding tells whether these prompts fit.
    server = launch(**SERVER, tokenizer=byte_tokenizer((*PIECES, LONG_PIECE)))
    prompts = ("a " * 1_000_000, "b " * 500_000)
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
    with HealthPoller(server) as poller:
        answer = server.client.post(PATH, content=body, headers={"content-type": "application/json"})
    expect_error(answer, 400)
    assert poller.longest_gap_s < POLL_INTERVAL_S + LONGEST_STALL_S
    assert server.works()


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "user", "content": "a" * 5_000_000}]},
        {"messages": [5] * 500_000},
        {"messages": [{}] * 500_000},
        {"messages": [{"role": "user", "content": "a"}] * 100_000},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * 100_000}]},
        {"tools": [{}] * 500_000},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"a": [[]] * 500_000}}}]},
        {"tool_choice": ["x"] * 500_000},
        {"response_format": {"type": "json_object"}, "stop": [5] * 500_000},
    ],
    ids=lambda fields: json.dumps(fields)[:50],
)
@pytest.mark.parametrize("path", [CHAT_PATH, "/tokenize"])
def test_large_conversations_stall_nobody(server, path, fields):
    body = json.dumps(
        {"messages": [{"role": "user", "content": "a" * 50_000}], **fields}, separators=(",", ":")
    )
    with HealthPoller(server) as poller:
        answer = server.client.post(path, content=body, headers={"content-type": "application/json"})
    if path == CHAT_PATH or "messages" in fields:
        expect_error(answer, 400)
    assert poller.longest_gap_s < POLL_INTERVAL_S + LONGEST_STALL_S
    assert server.works()


def test_a_body_of_50_mb_is_refused(server):
    body = b'{"prompt": "' + b"a" * 50_000_000 + b'"}'
    with HealthPoller(server) as poller:
        answer = server.client.post(PATH, content=body, headers={"content-type": "application/json"})
    expect_error(answer, 413)
    assert poller.longest_gap_s < POLL_INTERVAL_S + LONGEST_STALL_S
    assert server.works()
