"""Reading a JSON body: bounded in size, strict in syntax."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json

from minivllm_runtime.garbage import collection_held_off
from minivllm_server.errors import ApiError
from minivllm_server.serving import Serving


class JSONRequest(Request):
    """A request whose body may have `max_body_bytes` of the serving state and must be strict JSON.

    NaN, infinities and lone surrogates are refused, which `json.loads` lets through.
    """

    async def body(self) -> bytes:
        """Returns the body.

        Raises:
            ApiError: 413; when the declared length is too large nothing is read. 408, it did not come in time.
        """
        serving: Serving = self.app.state.serving
        try:
            async with asyncio.timeout(serving.read_timeout_s):
                self._json_source = await self._read(serving.max_body_bytes)
        except TimeoutError as error:
            raise ApiError(
                408,
                f"the body did not come within {serving.read_timeout_s:g} s",
                headers={"Connection": "close"},
            ) from error
        return self._json_source

    async def _read(self, limit: int) -> bytes:
        declared = self.headers.get("content-length", "0")
        if declared.isdecimal() and int(declared) > limit:
            raise _too_large(limit)
        body = bytearray()
        async for chunk in self.stream():
            body += chunk
            if len(body) > limit:
                raise _too_large(limit)
        return bytes(body)

    async def json(self) -> Any:
        """Returns the parsed body.

        Raises:
            ApiError: 400, with the place of the first error.
        """
        try:
            with collection_held_off():
                return from_json(self._json_source, allow_inf_nan=False, cache_strings=False)
        except ValueError as error:
            raise ApiError(400, f"the body is not valid JSON: {error}", code="invalid_json") from error


class JSONRoute(APIRoute):
    """A route whose body is read by `JSONRequest`."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """Returns the handler with the request class replaced."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(JSONRequest(request.scope, request.receive))

        return handle


def _too_large(limit: int) -> ApiError:
    return ApiError(413, f"the body is larger than the limit of {limit} bytes", code="body_too_large")
