"""Bodies, status codes and the error envelope: C26 and the rows of WIRE.md around it."""

import pytest

from .byte_tokens import ids_of
from .harness import PATH
from .wire_client import expect_error

JSON = {"content-type": "application/json"}

OPTIONAL = [
    *("model", "max_tokens", "temperature", "top_p", "n", "stream", "stream_options", "stop", "seed", "user"),
    *("echo", "logprobs", "logit_bias", "presence_penalty", "frequency_penalty", "best_of", "suffix"),
    *("top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos", "stop_token_ids", "priority"),
    *("skip_special_tokens", "include_stop_str_in_output", "cache_salt", "response_format"),
    *("structured_outputs", "guided_json", "bad_words", "allowed_token_ids", "use_beam_search"),
]


def post(server, content, headers=JSON):
    return server.client.post(PATH, content=content, headers=headers)


def test_nulls_are_defaults(server):
    server.play(ids_of("hello"))
    answer = server.client.post(PATH, json={"prompt": "a", **dict.fromkeys(OPTIONAL)})
    assert answer.status_code == 200
    assert answer.json()["usage"]["completion_tokens"] == 16
    for field in OPTIONAL:
        assert server.client.post(PATH, json={"prompt": "a", field: None}).status_code == 200, field


@pytest.mark.parametrize(
    "nothing", [{"bad_words": []}, {"use_beam_search": False}, {"guided_json": {}}], ids=str
)
def test_a_constraint_that_constrains_nothing_is_none(server, nothing):
    assert server.complete(**nothing).status_code == 200


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
    error = expect_error(server.complete(model=name), 404)
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
    error = expect_error(post(server, content), 400)
    assert len(error["message"]) < 1000
    assert server.works()


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"5", b'"prompt"', b"true"], ids=repr)
def test_a_body_that_is_no_object_is_told_so(server, content):
    assert expect_error(post(server, content), 400)["message"] == "the body must be a JSON object"


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_another_content_type_is_400(server, content_type):
    expect_error(post(server, b'{"prompt": "a"}', {"content-type": content_type}), 400)


@pytest.mark.parametrize(
    "content_type", ["application/json; charset=utf-8", "APPLICATION/JSON", "application/json;"]
)
def test_content_types_that_say_json(server, content_type):
    assert post(server, b'{"prompt": "a"}', {"content-type": content_type}).status_code == 200


@pytest.mark.parametrize(
    "field", ["temperature", "n", "stop", "stream", "prompt", "best_of", "stream_options"]
)
def test_echoed_input_is_cut_short(server, field):
    for value in ("y" * 100_000, {"y" * 100_000: 1}, [{"y": "y" * 1000}] * 100):
        if field in {"prompt", "stop"} and isinstance(value, str):
            continue
        answer = server.client.post(PATH, json={"prompt": "a", field: value})
        assert len(expect_error(answer, 400)["message"]) < 1000


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
    error = expect_error(server.client.request(method, path), status)
    assert len(error["message"]) < 1000


def test_errors_come_before_the_stream(server):
    for body in (
        {"top_p": 5},
        {"model": "other"},
        {"prompt": [-1]},
        {"max_tokens": 10**6},
        {"prompt": "a" * 65},
    ):
        answer = server.complete(stream=True, **body)
        expect_error(answer, 404 if "model" in body else 400)


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
    expect_error(server.client.get("/v1/models/other"), 404)


def test_health_and_version(server):
    assert server.client.get("/health").status_code == 200
    version = server.client.get("/version")
    assert version.status_code == 200
    assert version.json()["version"]
