"""One ledger for several processes: here each client is one."""

import asyncio
import time

import pytest

from minivllm_server.api_keys import KeyLimits, parse_key
from minivllm_server.ledger import LocalLedger
from minivllm_server.shared_ledger import LedgerClient, LedgerServer

KEYS = [
    parse_key("two:a", "key1", KeyLimits(max_concurrent_requests=2)),
    parse_key("rare:b", "key2", KeyLimits(requests_per_minute=1)),
    parse_key("short:c", "key3", KeyLimits(tokens_per_minute=60)),
]


@pytest.fixture
def server(tmp_path):
    with LedgerServer(LocalLedger(KEYS, time.monotonic), str(tmp_path / "ledger")) as server:
        yield server


async def connect(server, count=2):
    return [await LedgerClient.connect(server.address) for _ in range(count)]


async def close(*clients):
    for client in clients:
        await client.aclose()


def test_what_one_process_opens_counts_for_the_other(server):
    async def use():
        first, second = await connect(server)
        assert await first.open_request("two") is None
        assert await second.open_request("two") is None
        assert (await first.open_request("two")).limit == "2 requests at once"
        assert (await second.open_request("two")).limit == "2 requests at once"
        second.close_request("two")
        assert await second.open_request("two") is None
        assert await second.open_request("rare") is None
        refusal = await first.open_request("rare")
        assert refusal.limit == "1 requests per minute"
        assert 0 < refusal.wait_s <= 60
        await close(first, second)

    asyncio.run(use())


def test_tokens_charged_by_one_process_are_missing_to_the_other(server):
    async def use():
        first, second = await connect(server)
        assert await second.open_request("short") is None
        for num_tokens in (10, 20, 1000):
            first.charge_tokens("short", num_tokens)
        await first.aclose()
        assert (await second.open_request("short")).limit == "60 tokens per minute"
        await close(second)

    asyncio.run(use())


def test_charges_come_before_the_requests_that_follow(server):
    async def use():
        (client,) = await connect(server, 1)
        client.charge_tokens("short", 1000)
        await asyncio.sleep(0)
        assert (await client.open_request("short")).limit == "60 tokens per minute"
        await close(client)

    asyncio.run(use())


def test_what_a_lost_process_had_open_is_closed(server):
    async def use():
        lost, other = await connect(server)
        for _ in range(2):
            assert await lost.open_request("two") is None
        await lost.aclose()
        while await other.open_request("two") is not None:  # it is heard of soon
            await asyncio.sleep(0.001)
        assert await other.open_request("two") is None
        await close(other)

    asyncio.run(use())


def test_a_request_cancelled_while_it_asks_is_closed(server):
    async def use():
        (client,) = await connect(server, 1)
        for _ in range(20):
            asking = asyncio.create_task(client.open_request("two"))
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        while await client.open_request("two") is not None:  # the last ones are heard of soon
            await asyncio.sleep(0.001)
        assert await client.open_request("two") is None
        assert (await client.open_request("two")).limit == "2 requests at once"
        await close(client)

    asyncio.run(use())


def test_an_ended_server_is_an_error_not_a_silence(tmp_path):
    async def use():
        ledger = LocalLedger(KEYS, time.monotonic)
        with LedgerServer(ledger, str(tmp_path / "ledger")) as server:
            (client,) = await connect(server, 1)
            assert await client.open_request("two") is None
        with pytest.raises(ConnectionError, match="has ended"):
            await client.open_request("two")
        await close(client)

    asyncio.run(use())


def test_a_socket_that_cannot_be_made_is_an_error(tmp_path):
    with (
        pytest.raises(OSError, match="No such file"),
        LedgerServer(LocalLedger((), time.monotonic), str(tmp_path / "missing" / "ledger")),
    ):
        pass
