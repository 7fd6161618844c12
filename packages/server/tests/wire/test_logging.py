"""What a server writes to stderr: requests with their ids and counts, and nothing that was asked or answered."""

import json
import logging
import math
import os
import signal
from pathlib import Path

import httpx
import pytest

from minivllm_server.logs import JsonFormatter, LineHandler

from .byte_tokens import EOS, ids_of
from .harness import PATH, eventually
from .tape_process import tape_process
from .wire_client import RawConnection, raw_request

SERVER = {"context": 40_000, "trusted_proxy": ("127.0.0.1",), "api_key": ("ann:a-secret",)}
ANN = {"authorization": "Bearer a-secret"}


@pytest.fixture
def lines(tmp_path):
    """So many lines of the log, as objects, as soon as they are written: after the answers."""
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    handler = LineHandler(descriptor)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("minivllm_server")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)

    def wait_for(num):
        assert eventually(lambda: path.read_text().count("\n") >= num)
        found = [json.loads(line) for line in path.read_text().splitlines()]
        assert len(found) == num
        return found

    yield wait_for
    logger.setLevel(logging.NOTSET)
    logger.removeHandler(handler)
    os.close(descriptor)


def client_of(server, **headers):
    return httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=30)


@pytest.mark.parametrize("stream", [True, False])
def test_a_request_is_a_line(server, lines, stream):
    server.play(ids_of("hi", EOS))
    body = {"prompt": "a", "max_tokens": 9, "n": 2, "stream": stream, "temperature": 0}
    with client_of(server, **ANN) as client:
        client.post("/v1/completions", json=body, headers={"x-request-id": "mine"}).raise_for_status()
    (line,) = lines(1)
    assert line.pop("duration_ms") >= 0
    del line["time"]
    assert line == {
        "level": "info",
        "logger": "minivllm_server.access_log",
        "message": "request",
        "request_id": "mine",
        "client": "127.0.0.1",
        "key": "ann",
        "method": "POST",
        "path": "/v1/completions",
        "status": 200,
        "model": "scripted",
        "prompt_tokens": 1,
        "completion_tokens": 6,
        "finish_reasons": ["stop", "stop"],
    }


def test_refusals_are_logged(server, lines):
    with client_of(server) as client:
        client.get("/v1/models")
        client.get("/v1/models", headers=ANN | {"x-forwarded-for": "203.0.113.9"})
    refused, answered = lines(2)
    assert (refused["status"], "key" in refused) == (401, False)
    assert (answered["status"], answered["key"], answered["client"]) == (200, "ann", "203.0.113.9")


def test_nothing_of_what_is_asked_or_answered_is_logged(server, lines):
    server.play(ids_of("fish", EOS))
    server.model.faults.append(RuntimeError("broken"))
    with client_of(server, **ANN) as client:
        for _ in range(2):
            client.post("/v1/completions", json={"prompt": "bread", "max_tokens": 9})
            client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "bread"}]})
        client.post("/v1/completions", json={"prompt": "bread", "n": 0})
    log = str(lines(6))
    assert not any(word in log for word in ("bread", "fish", "a-secret"))


def test_what_is_asked_is_logged_on_demand(launch, lines):
    server = launch(log_prompts=True)
    with client_of(server) as client:
        client.post("/v1/completions", json={"prompt": "bread", "max_tokens": 1})
        client.post(
            "/v1/chat/completions",
            json={"messages": [{"role": "user", "content": "butter"}], "max_tokens": 1},
        )
    first, second = lines(2)
    assert first["prompt"] == ["bread"]
    assert second["prompt"] == [{"role": "user", "content": "butter"}]


def test_a_client_that_left_is_logged(server, lines):
    server.play(ids_of("."))
    body = json.dumps({"prompt": "a", "max_tokens": 30_000}).encode()
    headers = {"Content-Length": str(len(body)), **ANN}
    with RawConnection(server.port, raw_request(PATH, body, headers)):
        assert server.runs(1)
    (line,) = lines(1)
    assert line["status"] == 499


@pytest.mark.parametrize("api_processes", [1, 2])
def test_a_full_disk_loses_the_log_and_nothing_else(api_processes):
    with (
        Path("/dev/full").open("w") as full,
        tape_process(stderr=full, log_level="info", api_processes=api_processes) as server,
    ):
        server.allow(math.inf)
        for _ in range(4):
            with server.connect() as client:
                assert client.post(PATH, json={"prompt": "a", "max_tokens": 2}).status_code == 200
                assert client.post(PATH, content=b"{").status_code == 400
        server.signal(signal.SIGTERM)
        code, _ = server.wait()
        assert code == 0
