"""A trace span per request, sent by OpenTelemetry. Needs the extra `minivllm-server[otel]`.

Names of attributes: OpenTelemetry's semantic conventions for HTTP servers and for generative AI.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagators.textmap import Getter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from minivllm_server.exchange import exchange_in
from minivllm_server.version import server_version

_ATTRIBUTES = {
    "model": "gen_ai.request.model",
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "completion_tokens": "gen_ai.usage.output_tokens",
    "finish_reasons": "gen_ai.response.finish_reasons",
}
"""What the details of an exchange are called in a span; the others are left out."""


@contextmanager
def traces_to(endpoint: str) -> Iterator[Callable[[ASGIApp], ASGIApp]]:
    """Gives what puts tracing around an application; its spans go to an OTLP collector, in a thread of their own.

    Args:
        endpoint: URL, such as http://localhost:4318/v1/traces.
    """
    resource = Resource.create({"service.name": "minivllm", "service.version": server_version()})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint, timeout=5)))
    try:
        yield lambda app: Tracing(app, provider.get_tracer("minivllm"))
    finally:
        provider.shutdown()


class _HeaderGetter(Getter[Scope]):
    """Reads ASGI headers."""

    def get(self, carrier: Scope, key: str) -> list[str] | None:
        return [v.decode("latin-1") for k, v in carrier["headers"] if k == key.encode()] or None

    def keys(self, carrier: Scope) -> list[str]:
        return [k.decode("latin-1") for k, _ in carrier["headers"]]


class Tracing:
    """ASGI middleware that makes a span of each exchange, below the client's span if it names one.

    Args:
        app: Answers.
        tracer: Makes the spans.
    """

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer
        self._propagator = TraceContextTextMapPropagator()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        parent = self._propagator.extract(scope, getter=_HeaderGetter())
        name = f"{scope['method']} {scope['path']}"
        with self._tracer.start_as_current_span(name, parent, SpanKind.SERVER) as span:

            async def send_and_see(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        span.set_status(StatusCode.ERROR)
                await send(message)

            try:
                await self._app(scope, receive, send_and_see)
            finally:
                _describe(span, scope)


def _describe(span: Span, scope: Scope) -> None:
    exchange = exchange_in(scope)
    span.set_attribute("http.request.method", scope["method"])
    span.set_attribute("url.path", scope["path"])
    span.set_attribute("minivllm.request_id", exchange.request_id)
    if exchange.key_name is not None:
        span.set_attribute("minivllm.key", exchange.key_name)
    for detail, attribute in _ATTRIBUTES.items():
        if detail in exchange.details:
            span.set_attribute(attribute, exchange.details[detail])
