"""A line of log for every request that was answered, or was left by its client."""

import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from minivllm_server.exchange import exchange_in
from minivllm_server.logs import FIELDS
from minivllm_server.rate_limit import Clock

CLIENT_CLOSED_REQUEST = 499
"""The status logged where a client left before any answer; the number nginx uses."""

_log = logging.getLogger(__name__)


class AccessLog:
    """ASGI middleware that logs each exchange when it is over. What was asked and answered is not in it.

    Args:
        app: Answers.
        clock: The one that the exchanges began by.
    """

    def __init__(self, app: ASGIApp, clock: Clock) -> None:
        self._app = app
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = CLIENT_CLOSED_REQUEST

        async def send_and_see(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_see)
        finally:
            self._write(scope, status)

    def _write(self, scope: Scope, status: int) -> None:
        exchange = exchange_in(scope)
        client = scope.get("client")
        fields = {
            "client": None if client is None else client[0],
            "key": exchange.key_name,
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "duration_ms": round((self._clock() - exchange.started_at) * 1000, 1),
            **exchange.details,
        }
        _log.info(
            "request", extra={FIELDS: {name: value for name, value in fields.items() if value is not None}}
        )
