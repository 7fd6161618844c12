"""The `x-request-id` header: a client's own id is echoed, others get a fresh one."""

import uuid

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from minivllm_server.exchange import begin_exchange
from minivllm_server.logs import REQUEST_ID
from minivllm_server.rate_limit import Clock

HEADER = b"x-request-id"
MAX_HEADER_BYTES = 256


class RequestIdHeader:
    """ASGI middleware that begins an exchange and gives every response its `x-request-id`.

    The id is for the logs of clients and proxies and identifies nothing inside: two clients may send the same.
    """

    def __init__(self, app: ASGIApp, clock: Clock) -> None:
        self._app = app
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on and adds the header to the response."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == HEADER), b"")
        # A cut inside the value can leave it with a space at the end, which no header may have.
        request_id = given[:MAX_HEADER_BYTES].strip() or uuid.uuid4().hex.encode()
        begin_exchange(scope, request_id.decode("latin-1"), self._clock())
        REQUEST_ID.set(request_id.decode("latin-1"))

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), (HEADER, request_id)]}
            await send(message)

        await self._app(scope, receive, send_with_id)
