"""Tracing for those who ask for it: only then is OpenTelemetry needed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.types import ASGIApp

from minivllm_runtime.errors import InvalidParameter

Wrapper = Callable[[ASGIApp], ASGIApp]
"""Puts something around an application."""


@contextmanager
def optional_tracing(endpoint: str | None) -> Iterator[Wrapper | None]:
    """Gives what puts tracing around an application, None without an endpoint; sends what is left in the end.

    Raises:
        InvalidParameter: OpenTelemetry is not installed.
    """
    if endpoint is None:
        yield None
        return
    try:
        from minivllm_server.tracing import traces_to
    except ModuleNotFoundError as error:
        raise InvalidParameter(
            "otlp_endpoint", f"traces need the module {error.name}: install minivllm-server[otel]"
        ) from error
    with traces_to(endpoint) as trace:
        yield trace
