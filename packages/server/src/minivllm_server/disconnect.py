"""A client that leaves ends the handling of its request, whatever the handler waits for."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class CancelOnDisconnect:
    """ASGI middleware that cancels the application when the client closes the connection.

    ASGI reports a disconnect only to who asks for the next message, and a handler that waits for tokens does
    not ask. Once the body is complete this asks in its stead. A cancelled handler frees what it holds.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on and watches its client."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(receive, send)
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except asyncio.CancelledError:
            if not exchange.cancelled_by_disconnect():
                raise
        finally:
            exchange.stop_watching()


class _Exchange:
    """One request and its response, watched from the end of the request to the end of the response."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        task = asyncio.current_task()
        assert task is not None, "an ASGI application runs in a task"
        self._handler = task
        self._watcher: asyncio.Task[None] | None = None
        self._disconnected = asyncio.Event()

    async def receive(self) -> Message:
        """Passes the body on; after it, waits for the disconnect."""
        if self._watcher is not None:
            await self._disconnected.wait()
            return {"type": "http.disconnect"}
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            self._watcher = asyncio.create_task(self._watch())
        return message

    async def send(self, message: Message) -> None:
        """Passes the response on. After its end a disconnect is none."""
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.stop_watching()
        await self._send(message)

    def stop_watching(self) -> None:
        """Lets the handler end by itself."""
        if self._watcher is not None:
            self._watcher.cancel()

    def cancelled_by_disconnect(self) -> bool:
        """Whether the handler's cancellation came from here and from nobody else."""
        return self._disconnected.is_set() and self._handler.uncancel() == 0

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._disconnected.set()
        self._handler.cancel("the client is gone")
