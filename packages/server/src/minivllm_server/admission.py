"""Which requests get in: all of them, until the server is told to stop."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from minivllm_server.errors import error_response, unavailable
from minivllm_server.json_response import AsciiJSONResponse


class Admission:
    """ASGI middleware that counts the open requests and, once closed, answers new ones with 503.

    Requests that the server cancels as it ends, because their clients never sent the rest of them or do not read
    the answer, get the 503 too if no answer has begun.

    Attributes:
        num_open: Requests that are not answered yet.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.num_open = 0
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or refuses it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._closed:
            await _refusal()(scope, receive, send)
            return
        self.num_open += 1
        self._idle.clear()
        try:
            await self._admit(scope, receive, send)
        finally:
            self.num_open -= 1
            if self.num_open == 0:
                self._idle.set()

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def send_answer(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_answer)
        except asyncio.CancelledError:
            if not self._closed:
                raise
            if not has_begun:
                await _refusal()(scope, receive, send)

    def close(self) -> None:
        """Refuses every request from now on; open ones go on."""
        self._closed = True

    async def idle(self) -> None:
        """Waits until no request is open."""
        await self._idle.wait()


def _refusal() -> AsciiJSONResponse:
    return error_response(unavailable("the server is shutting down", code="shutting_down"))
