"""What becomes known of one HTTP request while it is handled, for limits, logs and traces."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.types import Scope


def _charge_nobody(_num_tokens: int) -> None:
    pass


@dataclass(slots=True)
class Exchange:
    """One HTTP request and its response. Each middleware fills in its own part.

    Attributes:
        request_id: The `x-request-id` of the response.
        started_at: When the request came, in seconds of the server's clock.
        key_name: Name of the API key it came with.
        charge_tokens: Counts tokens that the request reads or generates against the limits of its key.
        details: What a route has to say of the request, by name.
    """

    request_id: str
    started_at: float
    key_name: str | None = None
    charge_tokens: Callable[[int], None] = _charge_nobody
    details: dict[str, Any] = field(default_factory=dict)


def begin_exchange(scope: Scope, request_id: str, started_at: float) -> None:
    """Makes a new exchange known to whatever handles `scope`."""
    scope.setdefault("state", {})["exchange"] = Exchange(request_id, started_at)


def exchange_in(scope: Scope) -> Exchange:
    """Returns the exchange that `begin_exchange` put there."""
    exchange: Exchange = scope["state"]["exchange"]
    return exchange


async def exchange_of(request: Request) -> Exchange:
    """Returns the exchange of a request."""
    return exchange_in(request.scope)


ExchangeDependency = Annotated[Exchange, Depends(exchange_of)]
