"""HTTP/1.1 requests and nothing else: no other protocol comes of one, and no header after its head."""

from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

MAX_READ_AHEAD = 8
"""Requests that are read while an earlier one of their connection is answered."""


class PlainHttp(HttpToolsProtocol):
    """uvicorn's protocol without upgrades and without trailers.

    A wish to go on in another protocol is ignored (RFC 9110, 7.8), which the parser cannot do: it takes what follows
    the head, so also a body, for that protocol. The head is therefore parsed again without the wish.

    Fields after a chunked body are dropped. They must not become headers (RFC 9110, 6.5.1): by then those are checked,
    and a proxy in front has looked at the head alone.

    That the client has left is told to the request that is answered. uvicorn tells the last one that came, and reads no
    further once it has one that must wait, so that it would not see the client leave.

    Attributes:
        is_in_head: Whether a request has begun and its head is not complete.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.is_in_head = False
        self._answered: RequestResponseCycle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        answered = self._answered
        if answered is not None and not answered.response_complete:
            answered.disconnected = True
            answered.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Something came: a part of a request, one, or several."""
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except httptools.HttpParserError:
            message = "Invalid HTTP request received."
            self.logger.warning(message)
            self.send_400_response(message)

    def on_message_begin(self) -> None:
        """The first byte of a request came."""
        super().on_message_begin()
        self.is_in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of a head or a trailer came."""
        if self.is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head of a request is complete."""
        self.is_in_head = False
        if not self.parser.should_upgrade():
            super().on_headers_complete()
            if 0 < len(self.pipeline) <= MAX_READ_AHEAD:
                self.flow.resume_reading()

    def on_message_complete(self) -> None:
        """A request is complete."""
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def _parse(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                self.parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as upgrade:
                rest = rest[upgrade.args[0] :]
            if self.parser.get_method() == b"CONNECT":
                self.send_400_response("CONNECT is not served: this is no proxy")
                return
            head = self._head_without_upgrade()
            self.parser = self._new_parser()  # the other one may have been told to close
            self.parser.feed_data(head)

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        return parser

    def _head_without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode()
        request_line = b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)
        fields = [b"%s: %s" % field for field in self.headers if field[0] != b"upgrade"]
        return b"\r\n".join([request_line, *fields, b"", b""])
