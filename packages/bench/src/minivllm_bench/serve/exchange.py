"""One request and its response, on a connection of its own.

What arrives is handed on within the event loop's own callback: no task is woken for it, so the client costs a few
microseconds per piece and a time taken there is the time of arrival.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import httptools

from minivllm_bench.serve.endpoint import Endpoint


class Exchange(asyncio.Protocol):
    """Sends a request when the connection stands and passes on the response's body.

    Attributes:
        status: Of the response; None until its head arrived.
        headers: Of the response, names in lower case.
    """

    def __init__(self, request: bytes, receive_body: Callable[[bytes], object]) -> None:
        """Prepare an exchange; `open_exchange` connects it.

        Args:
            request: The whole request.
            receive_body: Called with each piece of the response's body, whatever its status.
        """
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self._request = request
        self._receive_body = receive_body
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self) -> None:
        """Wait for the end of the response; cancelled, hang up.

        Raises:
            ConnectionError: the connection was lost, or ended by `hang_up`, before that.
        """
        try:
            await self._end
        finally:
            self.hang_up()

    def hang_up(self) -> None:
        """Close the connection at once, whatever is still to come."""
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        """Leave what arrives in the socket's buffer until `resume_reading`."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on; without effect on a closed connection."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Parse what arrived."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"not an HTTP response: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """End an exchange that is not complete."""
        self._fail(ConnectionError(f"the connection was lost: {exc or 'closed before the end'}"))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header of the response (called by the parser)."""
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Keep the status of the response (called by the parser)."""
        self.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        """Hand on a piece of the body (called by the parser)."""
        self._receive_body(data)

    def on_message_complete(self) -> None:
        """End the exchange (called by the parser)."""
        if not self._end.done():
            self._end.set_result(None)

    def _fail(self, error: ConnectionError) -> None:
        if not self._end.done():
            self._end.set_exception(error)
            self._end.exception()  # Marks it as seen: who hung up need not wait for the end.


async def open_exchange(
    endpoint: Endpoint, request: bytes, receive_body: Callable[[bytes], object]
) -> Exchange:
    """Connect and send a request.

    Raises:
        OSError: there is no connection.
    """
    _, exchange = await asyncio.get_running_loop().create_connection(
        lambda: Exchange(request, receive_body), endpoint.host, endpoint.port, ssl=endpoint.tls or None
    )
    return exchange


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole response.

    Attributes:
        status: Of the response.
        headers: Names in lower case.
        body: As it was sent.
    """

    status: int
    headers: dict[str, str]
    body: bytes


async def fetch(endpoint: Endpoint, request: bytes, *, timeout_s: float) -> Answer:
    """Send a request and wait for the whole response.

    Raises:
        OSError: there is no connection, it was lost, or the time is over (TimeoutError).
    """
    body = bytearray()
    async with asyncio.timeout(timeout_s):
        exchange = await open_exchange(endpoint, request, body.extend)
        await exchange.wait()
    assert exchange.status is not None, "a complete response has a head"
    return Answer(exchange.status, exchange.headers, bytes(body))
