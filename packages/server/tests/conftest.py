"""Real servers on loopback ports."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Self

import pytest
import uvicorn

from minivllm_server.listener import bind, url_of


class BackgroundServer:
    """A uvicorn server in a thread of its own."""

    def __init__(self, app) -> None:
        self._ready = threading.Event()
        self._listener = bind("127.0.0.1", 0)
        self.url = url_of(self._listener)
        self.port = self._listener.getsockname()[1]
        self._server = uvicorn.Server(uvicorn.Config(app, lifespan="off", ws="none", log_level="critical"))
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(30), "the server did not start"
        return self

    def __exit__(self, *_exc: object) -> None:
        self._server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive(), "the server did not stop"

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        startup = self._server.startup

        async def startup_then_ready(sockets=None) -> None:
            await startup(sockets)
            self._ready.set()

        self._server.startup = startup_then_ready
        await self._server.serve(sockets=[self._listener])


@pytest.fixture
def serve_asgi() -> Iterator:
    """Serves an ASGI application; returns its `BackgroundServer`."""
    with contextlib.ExitStack() as stack:
        yield lambda app: stack.enter_context(BackgroundServer(app))
