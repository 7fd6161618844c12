"""A connection that no client can hold for ever: not by sending slowly, and not by refusing to read."""

import asyncio
import logging
from functools import partial
from typing import Any

from minivllm_server.errors import ApiError, envelope
from minivllm_server.json_response import to_json
from minivllm_server.plain_http import PlainHttp

MAX_HEAD_BYTES = 64 * 1024
"""Of a request's line and headers, and of what comes at once between and after the chunks of a body."""

_REASONS = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large"}
_log = logging.getLogger(__name__)


class BoundedConnection(PlainHttp):
    """The protocol with limits of time and size around it.

    A client has `read_timeout_s` to send the head of a request, from its first byte or from the beginning of the
    connection, and as long to send what is left of a body after the answer. (Handlers bound the body themselves;
    uvicorn closes a connection on which nothing comes between two requests.) Once more is written than the client
    reads, it has `write_timeout_s` to catch up.
    """

    def __init__(self, *args: Any, read_timeout_s: float, write_timeout_s: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self._read_timeout_s = read_timeout_s
        self._write_timeout_s = write_timeout_s
        self._read_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._num_framing_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The client has connected."""
        super().connection_made(transport)
        self._start_reading()

    def data_received(self, data: bytes) -> None:
        """Something came, of a head, of a body, or of what nobody waits for any more."""
        self._num_framing_bytes += len(data)
        super().data_received(data)
        if self._num_framing_bytes > MAX_HEAD_BYTES:
            part = "the head of the request" if self.is_in_head else "what is around the chunks of the body"
            self._refuse(ApiError(431, f"{part} is larger than {MAX_HEAD_BYTES} bytes"))
        elif self._read_timer is None and self.cycle is not None and self.cycle.response_complete:
            self._start_reading()

    def on_message_begin(self) -> None:
        """The first byte of a request came."""
        super().on_message_begin()
        self._num_framing_bytes = 0
        self._stop_reading()
        self._start_reading()

    def on_headers_complete(self) -> None:
        """The head of a request is complete."""
        self._num_framing_bytes = 0
        self._stop_reading()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of a body came, which is not for this class to bound."""
        self._num_framing_bytes = 0
        super().on_body(body)

    def timeout_keep_alive_handler(self) -> None:
        """Nothing came between two requests for long; but what came while the event loop was busy is read before."""
        self.timeout_keep_alive_task = self.loop.call_later(0, super().timeout_keep_alive_handler)

    def pause_writing(self) -> None:
        """The client reads more slowly than is written."""
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self._write_timeout_s, self._give_up_writing)

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._stop_writing()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._stop_reading()
        self._stop_writing()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answers what is not HTTP."""
        self._refuse(ApiError(400, msg))

    def _refuse(self, error: ApiError) -> None:
        if self.transport.is_closing():
            return
        if self._can_answer():
            self._answer(error)
        self.transport.close()

    def _can_answer(self) -> bool:
        """Whether an answer would be taken for that of the request that is refused, and not for another's."""
        if self.pipeline:
            return False
        if self.is_in_head:
            return self.cycle is None or self.cycle.response_complete
        return self.cycle is None or not self.cycle.response_started

    def _answer(self, error: ApiError) -> None:
        body = to_json(envelope(error).model_dump())
        head = (
            f"HTTP/1.1 {error.status_code} {_REASONS[error.status_code]}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)

    def _start_reading(self) -> None:
        self._read_timer = self.loop.call_later(self._read_timeout_s, self._give_up_reading)

    def _stop_reading(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _stop_writing(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _give_up_reading(self) -> None:
        if self.is_in_head:
            self._refuse(
                ApiError(408, f"the head of the request did not come within {self._read_timeout_s:g} s")
            )
        else:
            self.transport.close()

    def _give_up_writing(self) -> None:
        _log.warning("a client did not read for %g s; its connection is cut", self._write_timeout_s)
        self.transport.abort()


def bounded_connection(*, read_timeout_s: float, write_timeout_s: float) -> type[asyncio.Protocol]:
    """Returns what uvicorn makes connections with."""
    return partial(  # type: ignore[return-value]  # uvicorn calls it and does nothing else with it
        BoundedConnection, read_timeout_s=read_timeout_s, write_timeout_s=write_timeout_s
    )
