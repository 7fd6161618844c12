"""Who may ask for what: API keys, and the limits of each."""

from collections.abc import Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from minivllm_server.api_keys import ApiKey, KeyRing
from minivllm_server.errors import ApiError, error_response
from minivllm_server.exchange import exchange_in
from minivllm_server.rate_limit import Account, Clock

OPEN_PATHS = frozenset({"/health", "/docs", "/openapi.json"})
"""What is answered without a key: is it alive, and how is it used."""

_BEARER = b"bearer "


class Authentication:
    """ASGI middleware that lets in requests with a key, as long as its limits allow.

    Both are decided before any of the body is read.

    Args:
        app: What is guarded.
        keys: All keys.
        clock: Tells the time to the limits.
    """

    def __init__(self, app: ASGIApp, keys: KeyRing, clock: Clock) -> None:
        self._app = app
        self._keys = keys
        self._accounts: Mapping[str, Account] = {
            key.name: Account(key.name, key.limits, clock) for key in keys.keys if key.limits.has_any
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or answers with 401 or 429."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        exchange = exchange_in(scope)
        try:
            exchange.key_name = self._authenticate(scope).name
            account = self._accounts.get(exchange.key_name) if scope["method"] == "POST" else None
            if account is not None:
                account.open_request()
        except ApiError as error:
            await error_response(error)(scope, receive, send)
            return
        exchange.account = account
        try:
            await self._app(scope, receive, send)
        finally:
            if account is not None:
                account.close_request()

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
