"""What people type first."""

import json
import shutil
import subprocess

import pytest

from .byte_tokens import EOS, ids_of
from .wire_client import unwrap_error

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
JSON = ("-H", "Content-Type: application/json")


def curl(url, *arguments):
    result = subprocess.run(
        ["curl", "--silent", "--show-error", "--no-buffer", "--noproxy", "*", url, *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return result.stdout


def test_a_completion(server):
    server.play(ids_of("hello", EOS))
    answer = json.loads(
        curl(f"{server.url}/v1/completions", *JSON, "-d", '{"prompt": "a", "temperature": 0}')
    )
    assert answer["choices"][0]["text"] == "hello"


def test_a_stream(server):
    server.play(ids_of("hello", EOS))
    body = {"messages": [{"role": "user", "content": "a"}], "stream": True, "temperature": 0}
    *events, done, empty = curl(f"{server.url}/v1/chat/completions", *JSON, "-d", json.dumps(body)).split(
        "\n\n"
    )
    assert (done, empty) == ("data: [DONE]", "")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks) == "hello"


@pytest.mark.parametrize("arguments", [("-d", '{"prompt": "a"}'), (*JSON, "-d", "{"), ("-X", "DELETE")])
def test_mistakes_are_told(server, arguments):
    """Among them the one of leaving the content type to curl."""
    assert unwrap_error(json.loads(curl(f"{server.url}/v1/completions", *arguments)))


def test_a_large_body_that_curl_announces_first(server):
    """Over a megabyte curl waits for "100 Continue" before it sends."""
    body = json.dumps({"prompt": "a", "max_tokens": 1, "user": "x" * 2_000_000})
    answer = subprocess.run(
        ["curl", "--silent", "--noproxy", "*", f"{server.url}/v1/completions", *JSON, "-d", "@-"],
        input=body,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert json.loads(answer.stdout)["choices"]
