import json
import logging
import threading

import httpx
import pytest


class Stream(threading.Thread):
    """A client that reads one stream to its end."""

    def __init__(self, server, **body) -> None:
        super().__init__()
        self._url = f"{server.url}/v1/completions"
        self._body = {"prompt": "a", "max_tokens": 8, "stream": True, **body}
        self.began = threading.Event()
        self.events = []
        self.start()
        assert self.began.wait(30)

    def run(self) -> None:
        with httpx.stream("POST", self._url, json=self._body, timeout=30, trust_env=False) as answer:
            for line in answer.iter_lines():
                if line:
                    self.events.append(line.removeprefix("data: "))
                    self.began.set()


def test_open_requests_finish_while_new_ones_are_refused(serve_script, becomes_true, caplog):
    caplog.set_level(logging.INFO, "minivllm_server.server")
    server = serve_script("hello world")
    server.model.pace.hold()
    server.model.pace.allow(3)
    stream = Stream(server, max_tokens=50)
    with httpx.Client(base_url=server.url, trust_env=False, timeout=30) as client:
        assert client.get("/health").status_code == 200
        server.begin_to_drain()
        assert becomes_true(lambda: client.get("/health").status_code == 503)
        refused = client.post("/v1/completions", json={"prompt": "a"})
        assert refused.json()["error"]["code"] == "shutting_down"
    server.model.pace.release()
    stream.join(30)
    server.join()
    assert stream.events[-1] == "[DONE]"
    assert json.loads(stream.events[-2])["choices"][0]["finish_reason"] == "length"
    assert not server.engine.is_alive
    assert [record.getMessage() for record in caplog.records] == [
        "stopping: open requests (1) have 30 s to finish; a second signal ends them now"
    ]


def test_requests_that_outlive_the_drain_timeout_end_with_an_error(serve_script):
    server = serve_script("hello", context=100_000, settings={"drain_timeout_s": 0})
    stream = Stream(server, max_tokens=90_000)
    server.begin_to_drain()
    server.join()
    stream.join(30)
    assert "shut down" in json.loads(stream.events[-1])["error"]["message"]
    assert all("error" not in json.loads(event) for event in stream.events[:-1])


def test_a_second_signal_does_not_wait(serve_script):
    server = serve_script("hello", context=100_000, settings={"drain_timeout_s": 3600})
    stream = Stream(server, max_tokens=90_000)
    server.begin_to_drain()
    server.begin_to_drain()
    server.join()
    assert not server.engine.is_alive
    with pytest.raises(httpx.TransportError):
        httpx.get(server.url, trust_env=False, timeout=30)
    stream.join(30)
    assert stream.events[-1] != "[DONE]"


def test_an_idle_server_stops_at_once(serve_script, caplog):
    caplog.set_level(logging.INFO, "minivllm_server.server")
    server = serve_script("hello", settings={"drain_timeout_s": 3600})
    server.begin_to_drain()
    server.join()
    assert not server.engine.is_alive
    assert caplog.records == []
