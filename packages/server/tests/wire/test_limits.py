"""What cannot be served, by any of the limits: C27, long bodies, choices, pool."""

import json
import re

import pytest

from .harness import PATH
from .wire_client import RawConnection, expect_error, raw_request, unwrap_error


@pytest.mark.parametrize("fields", [{}, {"max_tokens": None}])
@pytest.mark.parametrize(
    ("num_prompt_tokens", "num_generated"), [(1, 16), (5, 16), (48, 16), (49, 15), (63, 1)]
)
def test_the_default_is_sixteen_tokens_or_the_room(server, fields, num_prompt_tokens, num_generated):
    answer = server.complete(prompt="p" * num_prompt_tokens, **fields).json()
    assert answer["usage"]["completion_tokens"] == num_generated
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("max_tokens", [1, 2, 58, 59])
def test_max_tokens_up_to_the_room_are_generated(server, max_tokens):
    answer = server.complete(prompt="p" * 5, max_tokens=max_tokens).json()
    assert answer["usage"]["completion_tokens"] == max_tokens


@pytest.mark.parametrize(
    ("num_prompt_tokens", "max_tokens"),
    [
        (5, 60),
        (5, 61),
        (1, 64),
        (63, 2),
        (5, 10**9),
        (40, 41),
        (64, 17),
        (70, 23),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_more_than_the_room_is_refused_with_the_numbers(server, num_prompt_tokens, max_tokens, stream):
    answer = server.complete(prompt="p" * num_prompt_tokens, max_tokens=max_tokens, stream=stream)
    message = expect_error(answer, 400)["message"]
    assert all(str(number) in message for number in (64, num_prompt_tokens, max_tokens))
    assert not re.search(r"-\d", message)
    assert server.works()


@pytest.mark.parametrize("num_prompt_tokens", [64, 65, 200, 5000])
@pytest.mark.parametrize("as_ids", [True, False])
def test_a_prompt_without_room_is_refused(server, num_prompt_tokens, as_ids):
    prompt = [97] * num_prompt_tokens if as_ids else "p" * num_prompt_tokens
    message = expect_error(server.complete(prompt=prompt), 400)["message"]
    assert "64" in message
    assert str(num_prompt_tokens) in message
    assert server.works()


def test_one_prompt_without_room_refuses_all(server):
    expect_error(server.complete(prompt=["a", "p" * 64, "b"]), 400)
    expect_error(server.complete(prompt=["a", "p" * 10], max_tokens=55), 400)
    assert server.is_at_rest()


@pytest.fixture(scope="module")
def small_pool(launch):
    """Eight tokens of KV in a context of 64."""
    return launch(num_blocks=2, block_size=4)


@pytest.mark.parametrize(("num_prompt_tokens", "max_tokens"), [(8, 1), (7, 2), (1, 8)])
def test_the_last_token_needs_no_room_in_the_pool(small_pool, num_prompt_tokens, max_tokens):
    answer = small_pool.complete(prompt="p" * num_prompt_tokens, max_tokens=max_tokens).json()
    assert answer["usage"]["completion_tokens"] == max_tokens
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("num_prompt_tokens", "max_tokens"),
    [
        (8, 2),
        (8, 4),
        (1, 12),
        (7, 50),
        (9, 27),
        (60, 4),
    ],
)
def test_what_the_pool_never_holds_is_refused_with_the_numbers(small_pool, num_prompt_tokens, max_tokens):
    answer = small_pool.complete(prompt="p" * num_prompt_tokens, max_tokens=max_tokens)
    message = expect_error(answer, 400)["message"]
    assert all(str(number) in message for number in (num_prompt_tokens, max_tokens))
    assert small_pool.works()


@pytest.mark.parametrize(("prompts", "n"), [(1, 4), (2, 2), (4, 1), (1, 128), (200, 1)])
def test_more_choices_than_the_queue_holds_are_refused(launch, prompts, n):
    server = launch(max_num_waiting=3)
    message = expect_error(server.complete(prompt=["a"] * prompts, n=n), 400)["message"]
    assert "3" in message
    assert len(server.complete(prompt=["a"] * 3, max_tokens=1).json()["choices"]) == 3


@pytest.mark.parametrize("framing", ["content-length", "chunked"])
def test_a_body_over_the_limit_is_refused_unread(launch, framing):
    server = launch(max_body_bytes=10_000)
    if framing == "content-length":
        request = raw_request(PATH, b"", {"Content-Length": str(50 * 2**20)})
    else:
        chunk = b"%x\r\n%s\r\n" % (5000, b"x" * 5000)
        request = raw_request(PATH, chunk * 3, {"Transfer-Encoding": "chunked"})
    with RawConnection(server.port, request) as connection:  # the rest of the body never comes
        status, body = connection.read_answer()
    assert status == 413
    assert unwrap_error(json.loads(body))["message"]
    assert server.works()


def test_a_body_within_the_limit_is_read(launch):
    server = launch(max_body_bytes=10_000)
    assert "64" in expect_error(server.complete(prompt="a" * 9000), 400)["message"]
