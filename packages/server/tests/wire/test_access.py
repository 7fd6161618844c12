"""API keys, their limits, and pages of other origins."""

import contextlib
import http.client
import json
import select

import httpx
import openai
import pytest

from .byte_tokens import ids_of
from .harness import CONVERSATION, PATH
from .wire_client import PATIENCE_S, RawConnection, expect_error, raw_request

SERVER = {"context": 40_000, "api_key": ("ann:a-secret", "bob:b-secret"), "max_num_seqs": 1}
ANN = {"authorization": "Bearer a-secret"}
BOB = {"authorization": "Bearer b-secret"}
GUARDED = [
    ("POST", "/v1/completions"),
    ("POST", "/v1/chat/completions"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/scripted"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("GET", "/version"),
    ("GET", "/metrics"),
    ("GET", "/v1/nope"),
]


@pytest.mark.parametrize(("method", "path"), GUARDED)
@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "a-secret",
        "Bearer",
        "Bearer a",
        "Bearer a-secret2",
        "Bearer ann:a-secret",
        "Basic YTph",
    ],
)
def test_without_a_right_key_it_is_401(server, method, path, header):
    headers = {} if header is None else {"authorization": header}
    answer = server.client.request(method, path, headers=headers, json={} if method == "POST" else None)
    expect_error(answer, 401)
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize("path", ["/health", "/docs", "/openapi.json"])
def test_some_pages_are_open(server, path):
    assert server.client.get(path).status_code == 200


@pytest.mark.parametrize("headers", [ANN, BOB, {"authorization": "bearer a-secret"}])
def test_a_key_opens_the_rest(server, headers):
    assert server.client.get("/v1/models", headers=headers).status_code == 200
    answer = server.client.post(PATH, json={"prompt": "a", "max_tokens": 1}, headers=headers)
    assert answer.status_code == 200


def test_the_official_client(server):
    server.play(ids_of("hello"))
    with httpx.Client(trust_env=False) as http_client:
        options = {"base_url": f"{server.url}/v1", "http_client": http_client}
        good = openai.OpenAI(**options, api_key="a-secret")
        body = {"model": "scripted", "messages": CONVERSATION, "max_tokens": 5}
        assert good.chat.completions.create(**body).choices[0].message.content == "hello"
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(**options, api_key="other").chat.completions.create(**body)


def endless(server, key=ANN):
    """A stream that runs until the connection is left."""
    body = json.dumps({"prompt": "a", "max_tokens": 30_000, "stream": True}).encode()
    headers = {"Content-Length": str(len(body)), **key}
    return RawConnection(server.port, raw_request(PATH, body, headers))


def test_tenants_take_turns(server):
    """Ann, who had a long one, queues two and then Bob one: his is served first."""
    server.play(ids_of("."))
    with contextlib.ExitStack() as stack:
        with endless(server):
            assert server.runs(1)
            waiting = []
            for number, key in enumerate([ANN, ANN, BOB], start=1):
                waiting.append(stack.enter_context(endless(server, key)))
                assert server.queues(number)
        served, _, _ = select.select(waiting, [], [], PATIENCE_S)
        assert served == waiting[-1:]


def chunked(trailers, headers=None):
    """A request that is complete, with fields after its body."""
    body = b'{"prompt": "a", "max_tokens": 1}'
    framing = {"Transfer-Encoding": "chunked", **(headers or {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in trailers.items()).encode()
    return raw_request(PATH, b"%x\r\n%s\r\n0\r\n%s\r\n" % (len(body), body, lines), framing)


class TestTrailers:
    """Fields after a body are no headers: whoever checks those has seen them before."""

    def test_a_key_there_opens_nothing(self, server):
        with RawConnection(server.port, chunked({"Authorization": "Bearer a-secret"})) as connection:
            assert connection.read_answer()[0] == 401

    def test_nothing_there_is_echoed_or_replaces_a_header(self, server):
        trailers = {"X-Request-Id": "late", "Authorization": "Bearer wrong", "Content-Type": "text/html"}
        with RawConnection(server.port, chunked(trailers, ANN)) as connection:
            answer = http.client.HTTPResponse(connection._socket)
            answer.begin()
            assert answer.status == 200
            assert answer.headers["x-request-id"] != "late"


class TestLimits:
    def test_requests_per_minute_are_429_with_retry_after(self, launch):
        server = launch(api_key=("ann:a-secret", "bob:b-secret"), requests_per_minute=2)

        def post(headers):
            return server.client.post(PATH, json={"prompt": "a", "max_tokens": 1}, headers=headers)

        assert [post(ANN).status_code for _ in range(2)] == [200, 200]
        answer = post(ANN)
        expect_error(answer, 429)
        assert 1 <= int(answer.headers["retry-after"]) <= 30
        assert post(BOB).status_code == 200
        assert server.client.get("/v1/models", headers=ANN).status_code == 200

    @pytest.mark.parametrize("stream", [True, False])
    def test_tokens_per_minute_count_prompt_and_output(self, launch, stream):
        server = launch(api_key=("ann:a-secret",), tokens_per_minute=10)
        body = {
            "prompt": "aaaa",
            "max_tokens": 10,
            "n": 8,
            "stream": stream,
        }  # a debt of more than seven minutes
        assert server.client.post(PATH, json=body, headers=ANN).status_code == 200
        assert server.client.post(PATH, json=body, headers=ANN).status_code == 429

    def test_requests_at_once(self, launch):
        server = launch(api_key=("ann:a-secret",), max_concurrent_requests=1, context=40_000)
        body = {"prompt": "a", "max_tokens": 4}
        with endless(server):
            assert server.runs(1)
            expect_error(server.client.post(PATH, json=body, headers=ANN), 429)
        assert server.comes_to_rest()
        assert server.client.post(PATH, json=body, headers=ANN).status_code == 200

    def test_the_official_client_gets_its_typed_error(self, launch):
        server = launch(api_key=("ann:a-secret",), requests_per_minute=1)
        with (
            httpx.Client(trust_env=False) as http_client,
            openai.OpenAI(
                base_url=f"{server.url}/v1", api_key="a-secret", max_retries=0, http_client=http_client
            ) as api,
        ):
            api.completions.create(model="scripted", prompt="a", max_tokens=1)
            with pytest.raises(openai.RateLimitError):
                api.completions.create(model="scripted", prompt="a", max_tokens=1)


ORIGIN = "https://app.example"


@pytest.fixture(scope="module")
def open_to_a_page(launch):
    return launch(cors_allow_origin=(ORIGIN,), api_key=("ann:a-secret",))


def test_a_preflight_needs_no_key(open_to_a_page):
    headers = {
        "origin": ORIGIN,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type",
    }
    answer = open_to_a_page.client.options(PATH, headers=headers)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert "authorization" in answer.headers["access-control-allow-headers"]


@pytest.mark.parametrize(("headers", "status"), [(ANN, 200), ({}, 401)])
def test_a_page_may_read_answers_and_refusals(open_to_a_page, headers, status):
    answer = open_to_a_page.client.get("/v1/models", headers={"origin": ORIGIN, **headers})
    assert answer.status_code == status
    assert answer.headers["access-control-allow-origin"] == ORIGIN


def test_other_pages_may_not(open_to_a_page):
    answer = open_to_a_page.client.get("/v1/models", headers={"origin": "https://evil.example", **ANN})
    assert "access-control-allow-origin" not in answer.headers


def test_without_a_setting_no_origin_is_allowed(server):
    answer = server.client.get("/health", headers={"origin": ORIGIN})
    assert "access-control-allow-origin" not in answer.headers
