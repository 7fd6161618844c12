import asyncio
import time

import httpx
import pytest
from starlette.responses import JSONResponse

from minivllm_server.api_keys import KeyLimits, KeyRing, parse_key
from minivllm_server.auth import Authentication
from minivllm_server.exchange import exchange_in
from minivllm_server.ledger import LocalLedger
from minivllm_server.request_id import RequestIdHeader
from minivllm_server.shared_ledger import LedgerClient

KEYS = KeyRing(
    [
        parse_key("ann:a", "key1", KeyLimits()),
        parse_key("bob:b", "key2", KeyLimits(max_concurrent_requests=1)),
        parse_key("cid:c", "key3", KeyLimits(tokens_per_minute=60)),
    ]
)


async def tell_key(scope, receive, send):
    """Answers whose request it is, or breaks."""
    if scope["path"] == "/broken":
        raise RuntimeError("broken")
    exchange = exchange_in(scope)
    exchange.charge_tokens(100)
    await JSONResponse({"key": exchange.key_name})(scope, receive, send)


def guarded(ledger):
    return RequestIdHeader(Authentication(tell_key, KEYS, ledger), time.monotonic)


@pytest.fixture
def client(serve_asgi):
    url = serve_asgi(guarded(LocalLedger(KEYS.keys, time.monotonic))).url
    with httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
        yield client


def bearer(secret):
    return {"authorization": f"Bearer {secret}"}


def test_the_exchange_learns_whose_it_is(client):
    assert client.post("/", headers=bearer("a")).json() == {"key": "ann"}
    assert client.post("/", headers=bearer("b")).json() == {"key": "bob"}


def test_a_refusal_says_who_has_reached_what_and_when_to_come_back(client):
    assert client.post("/", headers=bearer("c")).status_code == 200
    answer = client.post("/", headers=bearer("c"))
    assert answer.status_code == 429
    assert answer.json()["error"]["message"] == "the key 'cid' has reached its limit of 60 tokens per minute"
    assert 30 <= int(answer.headers["retry-after"]) <= 41


def test_only_posts_count(client):
    for _ in range(3):
        assert client.get("/", headers=bearer("c")).json() == {"key": "cid"}
    assert client.post("/", headers=bearer("c")).status_code == 200


def test_a_request_that_breaks_is_over_too(client):
    for _ in range(3):
        assert client.post("/broken", headers=bearer("b")).status_code == 500
    assert client.post("/", headers=bearer("b")).status_code == 200


def test_what_is_limited_is_refused_once_the_keeper_of_the_ledger_has_ended(tmp_path):
    async def read_a_question_and_end(reader, writer):
        await reader.readline()
        writer.close()

    async def ask():
        address = str(tmp_path / "ledger")
        async with await asyncio.start_unix_server(read_a_question_and_end, address):
            ledger = await LedgerClient.connect(address)
            transport = httpx.ASGITransport(guarded(ledger))
            async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
                answers = [await client.post("/", headers=bearer(secret)) for secret in "cca"]
            await ledger.aclose()
        return answers

    waiting, late, unlimited = asyncio.run(ask())
    for answer in (waiting, late):
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "shutting_down"
        assert answer.headers["retry-after"] == "1"
        assert answer.headers["x-request-id"]
    assert unlimited.status_code == 200


def test_open_paths_need_no_key_and_learn_none(client):
    assert client.get("/health").json() == {"key": None}
    assert client.get("/health", headers=bearer("wrong")).status_code == 200
    assert client.get("/healthy").status_code == 401
