import socket
from types import SimpleNamespace

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from pydantic import BaseModel

from minivllm_server.errors import install_error_handlers
from minivllm_server.json_request import JSONRoute

LIMIT = 300_000


class Body(BaseModel):
    text: str = ""
    number: float = 0


@pytest.fixture
def server(serve_asgi):
    router = APIRouter(route_class=JSONRoute)

    @router.post("/")
    async def length(body: Body) -> int:
        return len(body.text)

    app = FastAPI()
    app.state.serving = SimpleNamespace(max_body_bytes=LIMIT, read_timeout_s=10)
    app.include_router(router)
    install_error_handlers(app)
    return serve_asgi(app)


def post(server, content, content_type="application/json"):
    headers = {} if content_type is None else {"content-type": content_type}
    return httpx.post(server.url, content=content, headers=headers, trust_env=False, timeout=30)


def refusal(answer):
    assert set(answer.json()) == {"error"}
    return answer.status_code, answer.json()["error"]["message"]


def test_a_body_within_the_limit_is_read(server):
    text = "x" * (LIMIT - 20)
    assert post(server, f'{{"text": "{text}"}}').json() == len(text)


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "application/vnd.x+json"])
def test_kinds_of_json(server, content_type):
    assert post(server, '{"text": "ab"}', content_type).json() == 2


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", None])
def test_other_content_types_are_refused(server, content_type):
    assert refusal(post(server, '{"text": "ab"}', content_type))[0] == 400


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        '{"text": "m", ',
        "[]",
        "null",
        "5",
        '{"number": NaN}',
        '{"number": Infinity}',
        r'{"text": "\ud800"}',
        b'{"text": "\xff"}',
        "[" * 100_000,
    ],
)
def test_what_is_not_a_json_object_is_refused(server, content):
    assert refusal(post(server, content))[0] == 400


def test_the_place_of_a_syntax_error_is_told(server):
    status, message = refusal(post(server, '{"text": x}'))
    assert status == 400
    assert "column 10" in message


def test_a_body_declared_too_large_is_refused_unread(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_a_client_that_sends_all_of_it_still_reads_the_answer(server):
    status, message = refusal(post(server, b"x" * (LIMIT + 10_000_000)))
    assert status == 413
    assert str(LIMIT) in message


def test_a_body_without_a_declared_length_is_counted(server):
    chunks = (b"x" * 10_000 for _ in range(100))
    assert refusal(post(server, chunks))[0] == 413
