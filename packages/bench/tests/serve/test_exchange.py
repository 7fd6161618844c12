import asyncio

import pytest

from minivllm_bench.serve.endpoint import Endpoint
from minivllm_bench.serve.exchange import fetch, open_exchange


async def answering(answer, talk, *, then_close=True):
    """What `talk` returns about a server that sends these bytes to whoever connects."""

    served = []

    async def serve(reader, writer):
        served.append(asyncio.current_task())
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        if not then_close:
            await reader.read()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        endpoint = Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
        try:
            return await talk(endpoint, endpoint.request("GET", "/"))
        finally:
            await asyncio.gather(*served, return_exceptions=True)


def answer_to(data, **options):
    async def talk(endpoint, request):
        return await fetch(endpoint, request, timeout_s=options.pop("timeout_s", 10))

    return asyncio.run(answering(data, talk, then_close=options.pop("then_close", True)))


def test_a_body_of_known_length_is_whole_before_the_connection_closes():
    answer = answer_to(b"HTTP/1.1 201 X\r\nX-A: b\r\nContent-Length: 2\r\n\r\nhi", then_close=False)
    assert (answer.status, answer.headers["x-a"], answer.body) == (201, "b", b"hi")


def test_a_chunked_body_is_joined():
    answer = answer_to(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n2\r\ni!\r\n0\r\n\r\n")
    assert answer.body == b"hi!"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhi",
        b"SSH-2.0 hello\r\n\r\n",
    ],
)
def test_an_answer_that_is_cut_or_no_http_is_a_connection_error(data):
    with pytest.raises(ConnectionError):
        answer_to(data)


def test_a_server_that_says_nothing_is_a_time_out():
    with pytest.raises(TimeoutError):
        answer_to(b"", then_close=False, timeout_s=0.05)


def test_a_port_nobody_listens_on_is_an_os_error():
    endpoint = Endpoint("127.0.0.1", 1)
    with pytest.raises(OSError, match="Connect"):
        asyncio.run(fetch(endpoint, endpoint.request("GET", "/"), timeout_s=5))


def test_hanging_up_ends_the_exchange_and_the_connection():
    async def talk(endpoint, request):
        heard = asyncio.Event()
        exchange = await open_exchange(endpoint, request, lambda _data: heard.set())
        await heard.wait()
        exchange.hang_up()
        with pytest.raises(ConnectionError):
            await exchange.wait()
        exchange.resume_reading()
        return exchange.status

    assert (
        asyncio.run(answering(b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\nx", talk, then_close=False)) == 200
    )


def test_a_paused_exchange_reads_nothing_until_it_is_resumed():
    async def talk(endpoint, request):
        received = bytearray()
        first = asyncio.Event()

        def receive(data):
            received.extend(data)
            first.set()

        exchange = await open_exchange(endpoint, request, receive)
        exchange.pause_reading()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(first.wait(), 0.1)
        exchange.resume_reading()
        await exchange.wait()
        return bytes(received)

    assert asyncio.run(answering(b"HTTP/1.1 200 X\r\nContent-Length: 2\r\n\r\nhi", talk)) == b"hi"
