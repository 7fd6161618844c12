"""Who may ask for what: API keys, and the limits of each."""

import math
from functools import partial

from starlette.types import ASGIApp, Receive, Scope, Send

from minivllm_server.api_keys import ApiKey, KeyRing
from minivllm_server.errors import ApiError, error_response, unavailable
from minivllm_server.exchange import exchange_in
from minivllm_server.ledger import Ledger

OPEN_PATHS = frozenset(
    {
        "/health",
        "/openapi.json",
        "/docs",
        "/docs/swagger-ui-bundle.js",
        "/docs/swagger-ui.css",
        "/docs/favicon.png",
    }
)
"""What is answered without a key: is it alive, and how is it used."""

_BEARER = b"bearer "


class Authentication:
    """ASGI middleware that lets in requests with a key, as long as its limits allow.

    Both are decided before any of the body is read.

    Args:
        app: What is guarded.
        keys: All keys.
        ledger: Of those keys that have limits.
    """

    def __init__(self, app: ASGIApp, keys: KeyRing, ledger: Ledger) -> None:
        self._app = app
        self._keys = keys
        self._ledger = ledger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or answers with 401, 429, or 503 if nobody counts any more."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        try:
            key = self._authenticate(scope)
            exchange_in(scope).key_name = key.name
            is_counted = key.limits.has_any and scope["method"] == "POST"
            if is_counted:
                await self._open_request(key)
        except ApiError as error:
            await error_response(error)(scope, receive, send)
            return
        if not is_counted:
            await self._app(scope, receive, send)
            return
        exchange_in(scope).charge_tokens = partial(self._ledger.charge_tokens, key.name)
        try:
            await self._app(scope, receive, send)
        finally:
            self._ledger.close_request(key.name)

    async def _open_request(self, key: ApiKey) -> None:
        try:
            refusal = await self._ledger.open_request(key.name)
        except ConnectionError as error:  # the parent has ended; this process will, too
            raise unavailable(str(error), code="shutting_down") from error
        if refusal is not None:
            raise ApiError(
                429,
                f"the key {key.name!r} has reached its limit of {refusal.limit}",
                code="rate_limit_exceeded",
                headers={"Retry-After": str(max(1, math.ceil(refusal.wait_s)))},
            )

    def _authenticate(self, scope: Scope) -> ApiKey:
        header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        if not header.lower().startswith(_BEARER):
            raise _unauthorized("an API key is needed: Authorization: Bearer <key>", "missing_api_key")
        key = self._keys.find(header[len(_BEARER) :].strip())
        if key is None:
            raise _unauthorized("the API key is not known here", "invalid_api_key")
        return key


def _unauthorized(message: str, code: str) -> ApiError:
    return ApiError(401, message, code=code, headers={"WWW-Authenticate": "Bearer"})
