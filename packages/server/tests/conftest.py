"""Real servers on loopback ports."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Self

import pytest
import uvicorn

from minivllm_server.listener import bind, url_of
from minivllm_server.server import DrainingServer, serve_engine
from minivllm_server.settings import ServerSettings

from .scripted_engine import scripted_engine
from .wire.harness import eventually


class BackgroundServer:
    """An event loop in a thread that serves on a free port; `_serve` listens until `_stop`."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._listener = bind("127.0.0.1", 0)
        self.url = url_of(self._listener)
        self.port = self._listener.getsockname()[1]
        self.loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(30), "the server did not start"
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()
        self.join()

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop may have ended
            self.loop.call_soon_threadsafe(self._stop)

    def join(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive(), "the server did not stop"

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        await self._serve()


class AsgiServer(BackgroundServer):
    """Serves any ASGI application."""

    def __init__(self, app) -> None:
        super().__init__()
        self._server = _ReadyServer(uvicorn.Config(app, lifespan="off", ws="none", log_level="critical"))
        self._server.on_ready = self._ready.set

    async def _serve(self) -> None:
        await self._server.serve(sockets=[self._listener])

    def _stop(self) -> None:
        self._server.should_exit = True


class _ReadyServer(uvicorn.Server):
    on_ready: Callable[[], None]

    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        self.on_ready()


class EngineServer(BackgroundServer):
    """Serves an engine as `minivllm serve` does."""

    def __init__(self, script, *, settings=None, **engine) -> None:
        super().__init__()
        self.engine, self.model = scripted_engine(script, **engine)
        queue = {name: engine[name] for name in ("max_num_waiting",) if name in engine}
        self._settings = ServerSettings(**{"served_model_name": "scripted", **queue, **(settings or {})})
        self._server: DrainingServer | None = None

    def stop(self) -> None:
        self.model.pace.release()
        super().stop()

    def begin_to_drain(self) -> None:
        """What the first SIGTERM does."""
        self.loop.call_soon_threadsafe(self._stop)

    async def _serve(self) -> None:
        await serve_engine(self.engine, self._listener, self._settings, on_ready=self._on_ready)

    def _on_ready(self, server: DrainingServer) -> None:
        self._server = server
        self._ready.set()

    def _stop(self) -> None:
        self._server.stop()


@pytest.fixture
def serve_asgi() -> Iterator[Callable[..., AsgiServer]]:
    """Serves an ASGI application."""
    with contextlib.ExitStack() as stack:
        yield lambda app: stack.enter_context(AsgiServer(app))


@pytest.fixture
def serve_script() -> Iterator[Callable[..., EngineServer]]:
    """Serves an engine that follows a script."""
    with contextlib.ExitStack() as stack:
        yield lambda script, **options: stack.enter_context(EngineServer(script, **options))


@pytest.fixture
def becomes_true() -> Callable[..., bool]:
    """Whether a condition that other threads make true holds within more time than any machine needs."""
    return eventually
