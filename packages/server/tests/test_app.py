import httpx
import pytest


@pytest.fixture
def client(serve_script):
    with httpx.Client(base_url=serve_script("hello").url, trust_env=False, timeout=30) as client:
        yield client


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/completions", 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/health", 405),
        ("GET", "/v1/nope", 404),
        ("GET", "/", 404),
        ("POST", "/v1/completions/", 404),
    ],
)
def test_wrong_paths_and_methods_are_errors_in_the_envelope(client, method, path, status):
    answer = client.request(method, path)
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_every_answer_has_a_request_id(client):
    for path in ("/health", "/v1/nope"):
        assert client.get(path, headers={"x-request-id": "mine"}).headers["x-request-id"] == "mine"
        assert client.get(path).headers["x-request-id"]


def test_the_interface_describes_requests_answers_and_errors(client):
    document = client.get("/openapi.json").json()
    operation = document["paths"]["/v1/completions"]["post"]
    assert set(operation["responses"]) == {"200", "default"}
    request = document["components"]["schemas"]["CompletionRequest"]
    assert request["required"] == ["prompt"]
    assert [kind["type"] for kind in request["properties"]["prompt"]["anyOf"]] == [
        "string",
        "array",
        "array",
        "array",
    ]


@pytest.mark.parametrize("has_key", [True, False])
def test_the_interface_says_what_needs_a_key(serve_script, has_key):
    server = serve_script("hello", settings={"api_key": ("ann:a-secret",) if has_key else ()})
    document = httpx.get(f"{server.url}/openapi.json", trust_env=False, timeout=30).json()
    guarded = {
        path
        for path, operations in document["paths"].items()
        for operation in operations.values()
        if operation.get("security")
    }
    assert guarded == (document["paths"].keys() - {"/health"} if has_key else set())


def test_a_body_over_the_limit_is_refused(serve_script):
    server = serve_script("hello", settings={"max_body_bytes": 1000})
    answer = httpx.post(
        f"{server.url}/v1/completions", json={"prompt": "a" * 2000}, trust_env=False, timeout=30
    )
    assert answer.status_code == 413
