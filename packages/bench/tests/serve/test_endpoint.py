import pytest

from minivllm_bench.errors import InvalidSetting
from minivllm_bench.serve.endpoint import Endpoint


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("http://127.0.0.1:8000", Endpoint("127.0.0.1", 8000)),
        ("http://127.0.0.1:8000/", Endpoint("127.0.0.1", 8000)),
        ("http://127.0.0.1:8000/v1", Endpoint("127.0.0.1", 8000)),
        ("http://example.org", Endpoint("example.org", 80)),
        ("https://example.org/llm/v1/", Endpoint("example.org", 443, tls=True, base_path="/llm")),
        ("http://[::1]:81", Endpoint("::1", 81)),
    ],
)
def test_a_url_is_taken_apart(url, endpoint):
    assert Endpoint.parse(url) == endpoint


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8000",
        "ftp://x",
        "http://",
        "http://x:port",
        "http://x:99999",
        "http://x/?a=1",
        "http://[x",
    ],
)
def test_what_is_no_url_of_a_server_is_refused(url):
    with pytest.raises(InvalidSetting):
        Endpoint.parse(url)


def test_a_request_is_http_with_length_key_and_base_path():
    request = Endpoint("x", 81, base_path="/llm", api_key="k").request("POST", "/a", b"{}", {"X-Id": "7"})
    head, _, body = request.partition(b"\r\n\r\n")
    first, *fields = head.decode().split("\r\n")
    assert first == "POST /llm/a HTTP/1.1"
    assert set(fields) == {
        "Host: x:81",
        "Connection: close",
        "Content-Length: 2",
        "Content-Type: application/json",
        "Authorization: Bearer k",
        "X-Id: 7",
    }
    assert body == b"{}"


def test_without_key_and_body_neither_is_spoken_of():
    request = Endpoint("x", 81).request("GET", "/health")
    assert b"Authorization" not in request
    assert b"Content-Type" not in request
    assert b"Content-Length: 0" in request
