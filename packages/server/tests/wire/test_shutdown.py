"""A signal ends a server gracefully; a port is served once."""

import json
import signal
import subprocess
import sys

import pytest

from .harness import PATH, eventually
from .tape_process import ENVIRONMENT, tape_process
from .wire_client import RawConnection, Stream, expect_error, raw_request, unwrap_error


def test_sigterm_lets_open_requests_finish_and_refuses_new_ones():
    with tape_process() as server:
        body = {"prompt": "a", "max_tokens": 200}
        server.allow(3)
        with Stream(server.client, PATH, {**body, "stream": True}) as stream:
            next(iter(stream))
            server.signal(signal.SIGTERM)
            too_long = {"prompt": "a", "max_tokens": 10**9}  # 400 until the signal is handled
            assert eventually(lambda: server.client.post(PATH, json=too_long).status_code == 503)
            expect_error(server.client.post(PATH, json=body), 503)
            server.allow(float("inf"))
            list(stream)
        assert stream.is_done
        assert len(stream.text()) == 200
        code, stderr = server.wait()
    assert code == 0
    assert "Traceback" not in stderr


@pytest.mark.parametrize("n", [1, 2])
def test_whole_answers_and_what_waits_finish_too(launch, n):
    server = launch(context=4000, max_num_seqs=1)
    server.model.pace.hold()
    posts = [server.in_background(max_tokens=500, n=n) for _ in range(2)]
    assert server.queues(2 * n - 1)  # both came, one choice runs
    server.drain()
    server.model.pace.release()
    for answer in (post.join_answer() for post in posts):
        assert answer.status_code == 200
        assert all(len(choice["text"]) == 500 for choice in answer.json()["choices"])


def test_every_one_of_several_processes_lets_its_requests_finish():
    with tape_process(api_processes=2) as server, server.streams(6, max_tokens=2000) as streams:
        server.signal(signal.SIGTERM)
        server.allow(float("inf"))
        for stream in streams:
            list(stream)
            assert stream.is_done
            assert len(stream.text()) == 2000
        assert server.wait() == (0, "")


@pytest.mark.parametrize("api_processes", [1, 2])
def test_requests_that_outlive_the_drain_timeout_get_an_error(api_processes):
    endless = {"prompt": "a", "max_tokens": 30_000}
    with tape_process(drain_timeout_s=0.2, api_processes=api_processes) as server:
        server.allow(float("inf"))
        request = raw_request(PATH, json.dumps(endless).encode())
        with (
            RawConnection(server.client.base_url.port, request) as whole,
            Stream(server.client, PATH, {**endless, "stream": True}) as stream,
        ):
            next(iter(stream))
            assert server.runs(2)
            server.signal(signal.SIGTERM)
            *_, last = list(stream)
            unwrap_error(last)
            assert not stream.is_done
            status, body = whole.read_answer()
        assert status == 503
        unwrap_error(json.loads(body))
        code, stderr = server.wait()
    assert code == 0
    assert "Traceback" not in stderr


def test_a_request_whose_body_never_came_gets_an_error():
    headers = {"Content-Length": "100", "Expect": "100-continue"}
    with tape_process(drain_timeout_s=3600) as server:
        with RawConnection(server.client.base_url.port, raw_request(PATH, b"", headers)) as connection:
            assert connection.read_some().startswith(b"HTTP/1.1 100 ")  # the handler waits for the body
            server.signal(signal.SIGTERM)
            assert eventually(lambda: server.client.get("/health").status_code == 503)
            server.signal(signal.SIGTERM)
            status, body = connection.read_answer()
        assert status == 503
        assert unwrap_error(json.loads(body))["code"] == "shutting_down"
        code, stderr = server.wait()
    assert code == 0
    assert "Traceback" not in stderr


@pytest.mark.parametrize("api_processes", [1, 2])
def test_an_idle_server_ends_at_once(api_processes):
    with tape_process(drain_timeout_s=3600, api_processes=api_processes) as server:
        assert server.client.get("/health").status_code == 200
        server.signal(signal.SIGINT)
        assert server.wait() == (0, "")


@pytest.mark.parametrize("api_processes", ["1", "2"])
def test_a_second_server_on_the_port_says_so_in_one_line(server, api_processes):
    second = subprocess.run(
        [
            *(sys.executable, "-m", "minivllm_server", "serve"),
            *("--port", str(server.port), "--api-processes", api_processes),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        env=ENVIRONMENT,
        check=False,
    )
    assert second.returncode != 0
    (line,) = second.stderr.splitlines()
    assert str(server.port) in line
    assert server.works()
