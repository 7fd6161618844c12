"""Every failure as OpenAI's error envelope with the right status: the one place that knows both.

`{"error": {"message", "type", "param", "code"}}` is what the `openai` client turns into its typed errors.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from minivllm_runtime.errors import (
    ContextLengthExceeded,
    EngineDead,
    InvalidParameter,
    MinivllmError,
    QueueFull,
    RequestFailed,
)
from minivllm_server.json_response import AsciiJSONResponse
from minivllm_server.protocol.error import ErrorDetails, ErrorResponse
from minivllm_server.violations import describe_violation

RETRY_AFTER_S = 1
MAX_MESSAGE_CHARS = 512
"""Longer messages are cut: they may quote what the client sent."""
MAX_PATH_CHARS = 128
"""Of a path in a message, so that what is said about it is not cut."""

_log = logging.getLogger(__name__)


class ApiError(HTTPException):
    """A request that is answered with an error.

    Attributes:
        status_code: HTTP status.
        detail: What went wrong, for a person.
        param: The field of the request that is to blame.
        code: A word programs can compare.
        headers: Further response headers.
    """

    def __init__(
        self,
        status_code: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status_code, message, dict(headers) if headers else None)
        self.param = param
        self.code = code


def to_api_error(error: Exception) -> ApiError:
    """Returns what a client is told about `error`; what is not expected becomes a 500 without details."""
    match error:
        case ApiError():
            return error
        case HTTPException():
            return ApiError(error.status_code, str(error.detail), headers=error.headers)
        case RequestValidationError():
            return _from_validation(error.errors())
        case InvalidParameter():
            is_too_long = isinstance(error, ContextLengthExceeded)  # agents look for the code, and make room
            code = "context_length_exceeded" if is_too_long else None
            return ApiError(400, str(error), param=error.param, code=code)
        case QueueFull():
            return unavailable(str(error), code="queue_full")
        case EngineDead():
            return ApiError(503, str(error), code="engine_dead")
        case RequestFailed():
            return ApiError(500, str(error), code="request_failed")
        case _:
            return ApiError(500, "internal server error", code="internal_error")


def unavailable(message: str, *, code: str) -> ApiError:
    """Returns a 503 that invites to try again soon."""
    return ApiError(503, message, code=code, headers={"Retry-After": str(RETRY_AFTER_S)})


def envelope(error: ApiError) -> ErrorResponse:
    """Returns the body of an error."""
    message = error.detail
    if len(message) > MAX_MESSAGE_CHARS:
        message = message[:MAX_MESSAGE_CHARS] + "…"
    details = ErrorDetails(
        message=message,
        type="server_error" if error.status_code >= 500 else "invalid_request_error",
        param=error.param,
        code=error.code,
    )
    return ErrorResponse(error=details)


def error_response(error: Exception) -> AsciiJSONResponse:
    """Returns the whole response for an exception."""
    api_error = to_api_error(error)
    body = envelope(api_error).model_dump()
    return AsciiJSONResponse(body, status_code=api_error.status_code, headers=api_error.headers)


def install_error_handlers(app: FastAPI) -> None:
    """Makes `app` answer every exception with the envelope."""

    async def handle(request: Request, error: Exception) -> AsciiJSONResponse:
        if isinstance(error, RequestFailed | EngineDead):
            _log.error("%s: %s", type(error).__name__, error)
        if isinstance(error, HTTPException) and not isinstance(error, ApiError):
            error = _from_routing(request, error)
        return error_response(error)

    for kind in (HTTPException, RequestValidationError, MinivllmError, Exception):
        app.add_exception_handler(kind, handle)


def _from_routing(request: Request, error: HTTPException) -> ApiError:
    """Says what was asked for, where the framework only knows that nothing answers it."""
    path = str(request.scope["path"])[:MAX_PATH_CHARS]
    match error.status_code:
        case 404:
            message = f"there is no endpoint {path!r}; /docs lists those there are"
        case 405:
            allowed = Headers(error.headers).get("allow", "other methods")
            message = f"{path!r} does not answer {request.method}; it takes {allowed}"
        case _:
            message = str(error.detail)
    return ApiError(error.status_code, message, headers=error.headers)


def _from_validation(violations: Sequence[Any]) -> ApiError:
    first = violations[0]
    if first["type"] == "json_invalid":
        return ApiError(400, f"the body is not valid JSON: {first['ctx']['error']}", code="invalid_json")
    if isinstance(first["input"], bytes):  # nothing took it for JSON
        return ApiError(400, "the body must be a JSON object, sent with Content-Type: application/json")
    location = [part for part in first["loc"] if part != "body"]
    if not location and first["type"] in ("missing", "model_attributes_type"):
        return ApiError(400, "the body must be a JSON object")
    param = str(location[0]) if location else None
    return ApiError(400, describe_violation(first, location), param=param)
