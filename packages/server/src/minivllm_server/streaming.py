"""Server-sent events: the deltas of a generation written as they come."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from minivllm_runtime.errors import MinivllmError
from minivllm_runtime.outputs import ChoiceDelta
from minivllm_server.errors import envelope, to_api_error
from minivllm_server.generation import Generation
from minivllm_server.json_response import to_json

DONE = b"data: [DONE]\n\n"

_log = logging.getLogger(__name__)


EVENT_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {
            "text/event-stream": {
                "schema": {
                    "type": "object",
                    "description": "An event. Its data is a chunk as JSON, or [DONE] in the last one.",
                    "properties": {"data": {"type": "string"}},
                    "required": ["data"],
                }
            }
        }
    }
}
"""What the API document says of an endpoint that can stream its answer."""


class ChunkFormat(Protocol):
    """Turns deltas into the chunks of one endpoint."""

    def opening_chunks(self) -> Iterable[dict[str, Any]]:
        """Returns the chunks that come before every delta."""

    def chunks(self, deltas: Iterable[ChoiceDelta]) -> Iterable[dict[str, Any]]:
        """Returns the chunks for new deltas."""

    def closing_chunks(self) -> Iterable[dict[str, Any]]:
        """Returns the chunks that follow the last delta."""


def event(content: dict[str, Any]) -> bytes:
    """Returns one server-sent event with a JSON payload."""
    return b"data: " + to_json(content) + b"\n\n"


async def open_event_stream(generation: Generation, chunk_format: ChunkFormat) -> "EventStream":
    """Waits for the first deltas and returns the response that goes on from there.

    A failure before the first token is thus raised here and becomes an ordinary error response. The response
    owns the generation from now on; on an exception it is closed.
    """
    deltas = aiter(generation)
    try:
        first = await anext(deltas)
    except BaseException:
        await generation.aclose()
        raise
    return EventStream(generation, first, deltas, chunk_format)


class EventStream(Response):
    """A response of server-sent events: chunks, closing chunks, `[DONE]`.

    A failure ends the stream with one error event instead of the closing chunks. Whatever ends
    the stream, the generation is closed, which aborts what is unfinished.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        generation: Generation,
        first: tuple[ChoiceDelta, ...],
        rest: AsyncIterator[tuple[ChoiceDelta, ...]],
        chunk_format: ChunkFormat,
    ) -> None:
        self.status_code = 200
        self.background = None
        # A failed stream must end with a closed connection, and only a header sent up front can promise that.
        self.init_headers({"cache-control": "no-cache", "connection": "close", "x-accel-buffering": "no"})
        self._generation = generation
        self._first = first
        self._rest = rest
        self._chunk_format = chunk_format

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Writes the stream."""
        async with aclosing(self._generation), aclosing(self._bodies()) as bodies:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            async for body in bodies:
                await send({"type": "http.response.body", "body": body, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _bodies(self) -> AsyncGenerator[bytes, None]:
        """Yields the events, those of one step joined."""
        try:
            yield b"".join(event(chunk) for chunk in self._chunk_format.opening_chunks()) + self._render(
                self._first
            )
            async for deltas in self._rest:
                yield self._render(deltas)
            yield b"".join(event(chunk) for chunk in self._chunk_format.closing_chunks()) + DONE
        except Exception as error:
            api_error = to_api_error(error)
            if api_error.status_code >= 500:  # what is the client's fault is no news of ours
                _log.error("a stream failed: %s", error, exc_info=not isinstance(error, MinivllmError))
            yield event(envelope(api_error).model_dump())

    def _render(self, deltas: tuple[ChoiceDelta, ...]) -> bytes:
        return b"".join(event(chunk) for chunk in self._chunk_format.chunks(deltas))
