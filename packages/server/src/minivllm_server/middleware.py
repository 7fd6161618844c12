"""What is wrapped around the application, in one place because the order matters.

    request id → trace → log → origins of pages → admission → keys and limits → disconnect → application

A refusal by any of them has a request id, is logged, and can be read by the pages that may call the server.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from minivllm_server.access_log import AccessLog
from minivllm_server.admission import Admission
from minivllm_server.auth import Authentication
from minivllm_server.disconnect import CancelOnDisconnect
from minivllm_server.ledger import Ledger
from minivllm_server.request_id import RequestIdHeader
from minivllm_server.settings import ServerSettings


@dataclass(frozen=True, slots=True)
class Stack:
    """A wrapped application.

    Attributes:
        app: The outermost layer.
        admission: Lets requests in until it is closed.
    """

    app: ASGIApp
    admission: Admission


def wrap(
    app: ASGIApp,
    settings: ServerSettings,
    ledger: Ledger,
    trace: Callable[[ASGIApp], ASGIApp] | None = None,
) -> Stack:
    """Wraps an application.

    Args:
        app: Answers requests that are let in.
        settings: Keys and origins.
        ledger: Of the keys that have limits.
        trace: Puts tracing around an application; None: no traces.
    """
    clock = time.monotonic
    key_ring = settings.key_ring()
    app = CancelOnDisconnect(app)
    if key_ring is not None:
        app = Authentication(app, key_ring, ledger)
    admission = Admission(app)
    app = admission
    if settings.cors_allow_origin:
        app = CORSMiddleware(
            app,
            allow_origins=settings.cors_allow_origin,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),
            expose_headers=("x-request-id", "retry-after"),
        )
    app = AccessLog(app, clock)
    if trace is not None:
        app = trace(app)
    return Stack(RequestIdHeader(app, clock), admission)
