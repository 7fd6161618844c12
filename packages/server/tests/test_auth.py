import time

import httpx
import pytest
from starlette.responses import JSONResponse

from minivllm_server.api_keys import KeyLimits, KeyRing, parse_key
from minivllm_server.auth import Authentication
from minivllm_server.exchange import exchange_in
from minivllm_server.request_id import RequestIdHeader


@pytest.fixture
def client(serve_asgi):
    async def app(scope, receive, send):
        if scope["path"] == "/broken":
            raise RuntimeError("broken")
        exchange = exchange_in(scope)
        content = {"key": exchange.key_name, "limited": exchange.account is not None}
        await JSONResponse(content)(scope, receive, send)

    keys = KeyRing(
        [parse_key("ann:a", 1, KeyLimits()), parse_key("bob:b", 2, KeyLimits(max_concurrent_requests=1))]
    )
    url = serve_asgi(RequestIdHeader(Authentication(app, keys, time.monotonic), time.monotonic)).url
    with httpx.Client(base_url=url, trust_env=False) as client:
        yield client


def bearer(secret):
    return {"authorization": f"Bearer {secret}"}


def test_the_exchange_learns_whose_it_is(client):
    assert client.post("/", headers=bearer("a")).json() == {"key": "ann", "limited": False}
    assert client.post("/", headers=bearer("b")).json() == {"key": "bob", "limited": True}


def test_only_posts_count(client):
    assert client.get("/", headers=bearer("b")).json() == {"key": "bob", "limited": False}


def test_a_request_that_breaks_is_over_too(client):
    for _ in range(3):
        assert client.post("/broken", headers=bearer("b")).status_code == 500
    assert client.post("/", headers=bearer("b")).status_code == 200


def test_open_paths_need_no_key_and_learn_none(client):
    assert client.get("/health").json() == {"key": None, "limited": False}
    assert client.get("/health", headers=bearer("wrong")).status_code == 200
    assert client.get("/healthy").status_code == 401
