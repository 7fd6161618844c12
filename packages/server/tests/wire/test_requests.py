"""Bodies, status codes and the error envelope: C26, C27 and the rows of WIRE.md around them."""

import json

import pytest

from .byte_tokens import ids_of
from .harness import PATH
from .wire_client import RawConnection, error_of, raw_request

JSON = {"content-type": "application/json"}

OPTIONAL = (
    "model best_of cache_salt echo frequency_penalty ignore_eos include_stop_str_in_output logit_bias logprobs "
    "max_tokens min_p min_tokens n presence_penalty priority repetition_penalty seed skip_special_tokens stop "
    "stop_token_ids stream stream_options suffix temperature top_k top_p user"
).split()


def post(server, content, headers=JSON):
    return server.client.post(PATH, content=content, headers=headers)


def test_nulls_are_defaults(server):
    server.play(ids_of("hello"))
    answer = server.client.post(PATH, json={"prompt": "a", **dict.fromkeys(OPTIONAL)})
    assert answer.status_code == 200
    assert answer.json()["usage"]["completion_tokens"] == 16
    for field in OPTIONAL:
        assert server.client.post(PATH, json={"prompt": "a", field: None}).status_code == 200, field


@pytest.mark.parametrize("extra", [{"foo": 1}, {"foo": None, "bar": [{}]}, {"messages": "x"}, {"": 1}])
def test_unknown_fields_are_ignored(server, extra):
    assert server.complete(**extra).status_code == 200
    options = {"include_usage": True, **extra}
    assert server.stream(max_tokens=1, stream_options=options).read_all().chunks[-1]["usage"]


@pytest.mark.parametrize("name", ["scripted", "alias", None])
def test_every_served_name_is_taken(server, name):
    assert server.complete(model=name).status_code == 200


@pytest.mark.parametrize("name", ["other", "", "scripted ", "SCRIPTED", "x" * 100_000, "\u2028"])
def test_another_model_is_404(server, name):
    error = error_of(server.complete(model=name), 404)
    assert len(error["message"]) < 1000
    assert server.works()


@pytest.mark.parametrize(
    "content",
    [
        b'{"model": "m", ',
        b"[]",
        b"",
        b" ",
        b"null",
        b"5",
        b'"prompt"',
        b"true",
        b"{}",
        b'{"max_tokens": 5}',
        b'{"messages": []}',
        b'{"prompt": "a"',
        b'{"prompt": "a"} {}',
        b"{'prompt': 'a'}",
        b'{"prompt": "a",}',
        b'{"prompt": "\xff"}',
        b'{"prompt": "\xed\xa0\x80"}',
        b'{"prompt": "a\nb"}',
        b"prompt=a&max_tokens=5",
        b"\x00\x01\x02",
        b'{"prompt": "a", "seed": ' + b"1" * 5000 + b"}",
        b'{"prompt": ' + b"[" * 100_000 + b"}",
        b'{"prompt": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"prompt": "a", "foo": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
    ],
    ids=lambda content: repr(content[:24]),
)
def test_odd_bodies_are_400(server, content):
    error = error_of(post(server, content), 400)
    assert len(error["message"]) < 1000
    assert server.works()


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_another_content_type_is_400(server, content_type):
    error_of(post(server, b'{"prompt": "a"}', {"content-type": content_type}), 400)


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "APPLICATION/JSON", "application/json;"])
def test_content_types_that_say_json(server, content_type):
    assert post(server, b'{"prompt": "a"}', {"content-type": content_type}).status_code == 200


@pytest.mark.parametrize("field", ["temperature", "n", "stop", "stream", "prompt", "best_of", "stream_options"])
def test_echoed_input_is_cut_short(server, field):
    for value in ("y" * 100_000, {"y" * 100_000: 1}, [{"y": "y" * 1000}] * 100):
        if field in {"prompt", "stop"} and isinstance(value, str):
            continue
        answer = server.client.post(PATH, json={"prompt": "a", field: value})
        assert len(error_of(answer, 400)["message"]) < 1000


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", PATH, 405),
        ("PUT", PATH, 405),
        ("DELETE", PATH, 405),
        ("POST", "/v1/models", 405),
        ("POST", "/health", 405),
        ("GET", "/v1/nope", 404),
        ("POST", "/v1/nope", 404),
        ("GET", "/v1", 404),
        ("GET", "/nope/../nope", 404),
        ("POST", "/completions", 404),
        ("GET", "/v1/" + "x" * 5000, 404),
    ],
)
def test_unknown_routes_and_methods_are_in_the_envelope(server, method, path, status):
    error = error_of(server.client.request(method, path), status)
    assert len(error["message"]) < 1000


def test_errors_come_before_the_stream(server):
    for body in ({"top_p": 5}, {"model": "other"}, {"prompt": [-1]}, {"max_tokens": 10**6}, {"prompt": "a" * 65}):
        answer = server.complete(stream=True, **body)
        error_of(answer, 404 if "model" in body else 400)


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/version", "/v1/nope"])
def test_a_request_id_is_made_or_echoed(server, path):
    made = {server.client.get(path).headers["x-request-id"] for _ in range(3)}
    assert len(made) == 3
    assert server.client.get(path, headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"


def test_completions_have_a_request_id_too(server):
    headers = {"x-request-id": "mine-2"}
    for body in ({}, {"stream": True}, {"top_p": 9}, {"model": "other"}):
        answer = server.client.post(PATH, json={"prompt": "a", **body}, headers=headers)
        assert answer.headers["x-request-id"] == "mine-2"
        assert server.client.post(PATH, json={"prompt": "a", **body}).headers["x-request-id"]


@pytest.mark.parametrize("fields", [{}, {"max_tokens": None}])
@pytest.mark.parametrize(("num_prompt_tokens", "num_generated"), [(1, 16), (5, 16), (48, 16), (49, 15), (63, 1)])
def test_the_default_is_sixteen_tokens_or_the_room(server, fields, num_prompt_tokens, num_generated):
    answer = server.complete(prompt="p" * num_prompt_tokens, **fields).json()
    assert answer["usage"]["completion_tokens"] == num_generated
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("max_tokens", [1, 2, 58, 59])
def test_max_tokens_up_to_the_room_are_generated(server, max_tokens):
    answer = server.complete(prompt="p" * 5, max_tokens=max_tokens).json()
    assert answer["usage"]["completion_tokens"] == max_tokens


@pytest.mark.parametrize(
    ("num_prompt_tokens", "max_tokens"), [(5, 60), (5, 61), (1, 64), (63, 2), (64, 1), (5, 10**9), (40, 40)]
)
@pytest.mark.parametrize("stream", [True, False])
def test_more_than_the_room_is_refused_with_the_numbers(server, num_prompt_tokens, max_tokens, stream):
    answer = server.complete(prompt="p" * num_prompt_tokens, max_tokens=max_tokens, stream=stream)
    message = error_of(answer, 400)["message"]
    assert all(str(number) in message for number in (64, num_prompt_tokens, max_tokens))
    assert "-" not in message.replace("-token", "")
    assert server.works()


@pytest.mark.parametrize("num_prompt_tokens", [64, 65, 200, 5000])
@pytest.mark.parametrize("as_ids", [True, False])
def test_a_prompt_without_room_is_refused(server, num_prompt_tokens, as_ids):
    prompt = [97] * num_prompt_tokens if as_ids else "p" * num_prompt_tokens
    message = error_of(server.complete(prompt=prompt), 400)["message"]
    assert "64" in message
    assert str(num_prompt_tokens) in message
    assert server.works()


def test_one_prompt_without_room_refuses_all(server):
    error_of(server.complete(prompt=["a", "p" * 64, "b"]), 400)
    error_of(server.complete(prompt=["a", "p" * 10], max_tokens=55), 400)
    assert server.is_at_rest()


def test_the_pool_bounds_prompt_and_tokens_but_the_last(launch):
    server = launch(num_blocks=2, block_size=4)
    for num_prompt_tokens, max_tokens in ((8, 1), (7, 2), (1, 8)):
        answer = server.complete(prompt="p" * num_prompt_tokens, max_tokens=max_tokens)
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["completion_tokens"] == max_tokens
    for num_prompt_tokens, max_tokens in ((9, 1), (8, 2), (8, 4), (1, 9)):
        message = error_of(server.complete(prompt="p" * num_prompt_tokens, max_tokens=max_tokens), 400)["message"]
        assert all(str(number) in message for number in (8, num_prompt_tokens, max_tokens))
        assert server.works()


@pytest.mark.parametrize(("prompts", "n"), [(1, 4), (2, 2), (4, 1), (1, 128), (200, 1)])
def test_more_choices_than_the_queue_holds_are_refused(launch, prompts, n):
    server = launch(max_num_waiting=3)
    message = error_of(server.complete(prompt=["a"] * prompts, n=n), 400)["message"]
    assert "3" in message
    assert len(server.complete(prompt=["a"] * 3, max_tokens=1).json()["choices"]) == 3


def test_a_body_over_the_limit_is_refused_unread(launch):
    server = launch(max_body_bytes=10_000)
    unsent = raw_request(PATH, b"", Content_Length=str(50 * 2**20))
    chunk = b"%x\r\n%s\r\n" % (5000, b"x" * 5000)
    endless = raw_request(PATH, b"", Content_Length="0", Transfer_Encoding="chunked").replace(
        b"Content-Length: 0\r\n", b""
    )
    for request in (unsent, endless + chunk * 3):
        with RawConnection(server.port, request) as connection:
            head, _, body = connection.read_all().partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 413 ")
            assert set(json.loads(body)) == {"error"}
    assert server.complete(prompt="a" * 9000).status_code == 400
    assert server.works()


def test_the_list_of_models(server):
    body = server.client.get("/v1/models").json()
    assert body["object"] == "list"
    assert [model["id"] for model in body["data"]] == ["scripted", "alias"]
    for model in body["data"]:
        assert model["object"] == "model"
        assert isinstance(model["created"], int)
        assert isinstance(model["owned_by"], str)
        assert model["max_model_len"] == 64


def test_one_model(server):
    assert server.client.get("/v1/models/alias").json()["id"] == "alias"
    error_of(server.client.get("/v1/models/other"), 404)


def test_health_and_version(server):
    assert server.client.get("/health").status_code == 200
    version = server.client.get("/version")
    assert version.status_code == 200
    assert version.json()["version"]
