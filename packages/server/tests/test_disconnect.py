import asyncio
import socket
import threading

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from minivllm_server.disconnect import CancelOnDisconnect


class Handler:
    """An application that reads the body, begins its answer if told to, and waits to be cancelled."""

    def __init__(self, *, answers_first: bool) -> None:
        self.answers_first = answers_first
        self.waiting = threading.Event()
        self.cancelled = threading.Event()
        self.cleaned_up = threading.Event()

    async def __call__(self, scope, receive, send) -> None:
        await Request(scope, receive).body()
        if self.answers_first:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"first", "more_body": True})
        try:
            self.waiting.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        finally:
            await asyncio.sleep(0)  # cleaning up may itself wait
            self.cleaned_up.set()


def request_bytes(body: bytes) -> bytes:
    return b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


@pytest.mark.parametrize("answers_first", [False, True])
@pytest.mark.parametrize("body", [b"", b"x", b"x" * 1_000_000])
def test_a_client_that_leaves_cancels_the_handler(serve_asgi, answers_first, body):
    handler = Handler(answers_first=answers_first)
    server = serve_asgi(CancelOnDisconnect(handler))
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(request_bytes(body))
        assert handler.waiting.wait(30)
        assert not handler.cancelled.is_set()
    assert handler.cancelled.wait(30)
    assert handler.cleaned_up.wait(30)


def test_a_client_that_stays_gets_its_answers(serve_asgi):
    async def echo(scope, receive, send) -> None:
        body = await Request(scope, receive).body()
        await PlainTextResponse(body)(scope, receive, send)

    with httpx.Client(
        base_url=serve_asgi(CancelOnDisconnect(echo)).url, trust_env=False, timeout=30
    ) as client:
        assert [client.post("/", content=str(i)).text for i in range(5)] == list("01234")


def test_work_after_the_answer_is_not_cancelled(serve_asgi):
    finished = threading.Event()

    async def handler(scope, receive, send) -> None:
        await Request(scope, receive).body()
        await PlainTextResponse("ok", headers={"connection": "close"})(scope, receive, send)
        for _ in range(100):
            await asyncio.sleep(0)
        finished.set()

    assert (
        httpx.post(
            serve_asgi(CancelOnDisconnect(handler)).url, content=b"x", trust_env=False, timeout=30
        ).text
        == "ok"
    )
    assert finished.wait(30)


def test_a_cancellation_from_elsewhere_goes_through():
    async def run() -> None:
        messages = [{"type": "http.request", "body": b""}]

        async def receive():
            return messages.pop() if messages else await asyncio.Event().wait()

        handler = Handler(answers_first=False)
        task = asyncio.create_task(CancelOnDisconnect(handler)({"type": "http"}, receive, None))
        await asyncio.to_thread(handler.waiting.wait, 10)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
