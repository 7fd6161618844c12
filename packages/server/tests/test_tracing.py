import time

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from starlette.responses import PlainTextResponse

from minivllm_server.exchange import exchange_in
from minivllm_server.request_id import RequestIdHeader
from minivllm_server.tracing import Tracing

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def spans():
    return InMemorySpanExporter()


@pytest.fixture
def the_span(spans, becomes_true):
    """The only one, as soon as it has ended: after the answer."""

    def wait():
        assert becomes_true(spans.get_finished_spans)
        (span,) = spans.get_finished_spans()
        return span

    return wait


@pytest.fixture
def url(serve_asgi, spans):
    async def app(scope, receive, send):
        exchange_in(scope).details |= {"prompt_tokens": 3, "finish_reasons": ["stop"], "prompt": "secret"}
        await PlainTextResponse("x", 200 if scope["path"] == "/good" else 500)(scope, receive, send)

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    traced = Tracing(app, provider.get_tracer("test"))
    return serve_asgi(RequestIdHeader(traced, time.monotonic)).url


def test_a_request_is_a_span(url, the_span):
    httpx.get(f"{url}/good", headers={"x-request-id": "mine"}, trust_env=False, timeout=30)
    span = the_span()
    assert span.name == "GET /good"
    assert dict(span.attributes) == {
        "http.request.method": "GET",
        "url.path": "/good",
        "http.response.status_code": 200,
        "minivllm.request_id": "mine",
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.response.finish_reasons": ("stop",),
    }


def test_a_span_belongs_to_the_client_s_trace(url, the_span):
    headers = {"traceparent": f"00-{TRACE_ID}-00f067aa0ba902b7-01"}
    httpx.get(f"{url}/good", headers=headers, trust_env=False, timeout=30)
    span = the_span()
    assert f"{span.context.trace_id:032x}" == TRACE_ID
    assert f"{span.parent.span_id:016x}" == "00f067aa0ba902b7"


def test_a_failure_is_marked(url, the_span):
    httpx.get(f"{url}/bad", trust_env=False, timeout=30)
    span = the_span()
    assert span.status.status_code is StatusCode.ERROR
