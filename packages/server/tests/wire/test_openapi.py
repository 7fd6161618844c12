"""The API document is true: whatever is sent by it is answered in a documented shape, and nothing gives 500."""

from collections import Counter

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from .byte_tokens import EOS, ids_of

SERVER = {"context": 64, "max_num_seqs": 32}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


OPERATIONS = [
    ("POST", "/v1/completions"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{name}"),
    ("GET", "/health"),
    ("GET", "/version"),
    ("GET", "/metrics"),
]


@pytest.fixture(scope="module")
def document(module_server):
    return schemathesis.openapi.from_dict(module_server.client.get("/openapi.json").json())


def make_likely(body):
    """Puts right what no schema says, or else hardly any body would get past it."""
    for field in ("model", "tool_choice", "stream_options", "top_logprobs"):
        body.pop(field, None)
    for message in body.get("messages") or ():
        message["content"] = message.get("content") or "a"


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_answers_are_as_documented(server, document, method, path, mode):
    server.play(ids_of("hi", EOS))
    operation = document[path][method]
    if mode is GenerationMode.NEGATIVE and method == "GET":
        pytest.skip("there is nothing to get wrong")

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=40,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def check(case):
        if isinstance(case.body, dict) and mode is GenerationMode.POSITIVE:
            make_likely(case.body)
        answer = case.call(base_url=server.url)
        statuses[answer.status_code] += 1
        case.validate_response(answer, checks=CHECKS)

    statuses = Counter()
    check()
    if mode is GenerationMode.POSITIVE and "{name}" not in path:
        assert statuses[200] > 0, statuses


def test_every_endpoint_is_described_and_checked(document):
    described = {
        (method.upper(), path) for path, methods in document.raw_schema["paths"].items() for method in methods
    }
    assert described == set(OPERATIONS)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_answers_come_whole_or_as_a_stream(document, path):
    content = document.raw_schema["paths"][path]["post"]["responses"]["200"]["content"]
    assert set(content) == {"application/json", "text/event-stream"}
