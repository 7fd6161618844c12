"""Serving an engine over HTTP, from the bound socket to the graceful end."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from minivllm_runtime.engine.async_engine import AsyncEngine
from minivllm_server.admission import Admission
from minivllm_server.api_processes import Shared
from minivllm_server.app import create_app
from minivllm_server.connection import bounded_connection
from minivllm_server.ledger import Ledger, make_ledger
from minivllm_server.middleware import wrap
from minivllm_server.settings import ServerSettings
from minivllm_server.shared_ledger import LedgerClient

_log = logging.getLogger(__name__)

CLOSING_TIMEOUT_S = 5
"""How long a connection may stay open after its request was ended."""


class DrainingServer(uvicorn.Server):
    """A uvicorn server that lets open requests finish before it stops.

    The first SIGTERM or SIGINT closes admission: new requests get 503. When no request is open the server
    stops; those that outlive the drain time-out end with an error, as the engine is shut down under them. A
    second signal stops at once.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        admission: Admission,
        engine: AsyncEngine,
        drain_timeout_s: float,
        on_ready: Callable[["DrainingServer"], None],
    ) -> None:
        super().__init__(config)
        self._admission = admission
        self._engine = engine
        self._drain_timeout_s = drain_timeout_s
        self._on_ready = on_ready
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to listen."""
        await super().startup(sockets)
        self._on_ready(self)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  # uvicorn's signature
        """Handles a signal; unlike uvicorn, without raising it again in the end: a graceful stop succeeds."""
        asyncio.get_running_loop().call_soon_threadsafe(self.stop)

    def stop(self) -> None:
        """Begins to drain; called again, ends now. Must run on the event loop."""
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain())
        else:
            self.force_exit = self.should_exit = True

    async def _drain(self) -> None:
        self._admission.close()
        if self._admission.num_open:
            _log.info(
                "stopping: open requests (%d) have %g s to finish; a second signal ends them now",
                self._admission.num_open,
                self._drain_timeout_s,
            )
        try:
            async with asyncio.timeout(self._drain_timeout_s):
                await self._admission.idle()
        except TimeoutError:
            await self._engine.shutdown()
        finally:
            self.should_exit = True


async def serve_engine(
    engine: AsyncEngine,
    listener: socket.socket,
    settings: ServerSettings,
    *,
    on_ready: Callable[["DrainingServer"], None],
    trace: Callable[[ASGIApp], ASGIApp] | None = None,
    shared: Shared | None = None,
) -> None:
    """Starts `engine`, serves it on `listener` until a signal or `DrainingServer.stop`, and shuts it down.

    Args:
        engine: Loaded, not started.
        listener: A bound socket.
        settings: Limits and time-outs.
        on_ready: Called with the server once it accepts connections.
        trace: Puts tracing around an application; None: no traces.
        shared: What this process shares with others; None: it is the only one.
    """
    await engine.start()
    try:
        async with _open_ledger(settings, shared) as ledger:
            app = create_app(engine, settings, None if shared is None else shared.metrics_folder)
            stack = wrap(app, settings, ledger, trace)
            server = DrainingServer(
                _uvicorn_config(stack.app, settings),
                admission=stack.admission,
                engine=engine,
                drain_timeout_s=settings.drain_timeout_s,
                on_ready=on_ready,
            )
            await server.serve(sockets=[listener])
    finally:
        await engine.shutdown()


@asynccontextmanager
async def _open_ledger(settings: ServerSettings, shared: Shared | None) -> AsyncIterator[Ledger]:
    if shared is None:
        yield make_ledger(settings)
        return
    async with aclosing(await LedgerClient.connect(shared.ledger_address)) as client:
        yield client


def _uvicorn_config(app: ASGIApp, settings: ServerSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=bounded_connection(
            read_timeout_s=settings.read_timeout_s, write_timeout_s=settings.write_timeout_s
        ),
        lifespan="off",
        ws="none",
        proxy_headers=bool(settings.trusted_proxy),
        forwarded_allow_ips=list(settings.trusted_proxy),
        access_log=False,
        log_config=None,
        log_level="warning",
        timeout_graceful_shutdown=CLOSING_TIMEOUT_S,
    )
