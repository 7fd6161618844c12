"""Several HTTP processes in front of one engine process, with the bundled model."""

import os
import re
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from .test_cli import ENVIRONMENT, SMALL, command, expect_one_line, needs_smollm2, run

PROMPT = {"prompt": "The capital of France is", "max_tokens": 5, "temperature": 0}


@contextmanager
def served(*arguments):
    """(URL, process) of a server with two HTTP processes."""
    process = subprocess.Popen(
        command("serve", "--port", "0", "--api-processes", "2", *SMALL, *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    try:
        for line in process.stdout:
            if found := re.search(r"ready at (http://\S+) with 2 HTTP processes", line):
                yield found[1], process
                break
        else:
            pytest.fail(process.stderr.read())
    finally:
        process.kill()
        process.communicate()


def programs_of(process):
    """Process ids of the children, by the module they run."""
    programs = {}
    for thread in Path(f"/proc/{process.pid}/task").iterdir():
        for pid in (thread / "children").read_text().split():
            arguments = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if len(arguments) > 2:  # not one that ends at this moment
                programs.setdefault(arguments[2], []).append(int(pid))
    return programs


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def metric(url, name):
    text = httpx.get(f"{url}/metrics").text
    return float(re.search(rf"^minivllm:{name}{{[^}}]*}} (\S+)$", text, re.MULTILINE)[1])


@needs_smollm2
def test_serve_together_survive_one_another_and_end_together():
    with served() as (url, process):
        engine = programs_of(process)["minivllm_runtime.engine.process"][0]
        first, second = programs_of(process)["minivllm_server.api_process"]

        def complete():
            answer = httpx.post(f"{url}/v1/completions", json=PROMPT, timeout=30)
            assert answer.status_code == 200
            return answer.json()["choices"][0]["text"]

        texts = {complete() for _ in range(4)}
        assert len(texts) == 1
        # Whichever process answers, it knows of all requests.
        assert metric(url, "e2e_request_latency_seconds_count") == 4
        assert metric(url, "generation_tokens_total") == 20

        os.kill(first, signal.SIGKILL)
        wait_until(lambda: len(set(programs_of(process)["minivllm_server.api_process"]) - {first}) == 2)
        assert {complete() for _ in range(4)} == texts
        assert second in programs_of(process)["minivllm_server.api_process"]

        children = [engine, *programs_of(process)["minivllm_server.api_process"]]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        wait_until(lambda: not any(map(is_running, children)))


@needs_smollm2
def test_a_killed_engine_is_an_ill_health_of_all():
    with served() as (url, process):
        os.kill(programs_of(process)["minivllm_runtime.engine.process"][0], signal.SIGKILL)
        killed_at = time.monotonic()
        wait_until(lambda: httpx.get(f"{url}/health").status_code == 503)
        assert time.monotonic() - killed_at < 1
        assert httpx.post(f"{url}/v1/completions", json=PROMPT).status_code == 503


@needs_smollm2
def test_a_killed_parent_leaves_nobody_behind():
    with served() as (_, process):
        children = [pid for pids in programs_of(process).values() for pid in pids]
        assert len(children) == 3
        process.kill()
        wait_until(lambda: not any(map(is_running, children)))


@needs_smollm2
def test_limits_of_a_key_count_over_all_processes():
    with served("--api-key", "k", "--requests-per-minute", "5") as (url, process):
        headers = {"authorization": "Bearer k"}

        def status():
            with httpx.Client() as client:  # a connection each: any process may take it
                return client.post(
                    f"{url}/v1/completions", json=PROMPT, headers=headers, timeout=30
                ).status_code

        assert [status() for _ in range(7)] == [200] * 5 + [429] * 2
        # The count outlives whoever made it.
        for pid in programs_of(process)["minivllm_server.api_process"]:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: httpx.get(f"{url}/health").status_code == 200)
        assert status() == 429


def test_contradictions_are_refused():
    expect_one_line(run("serve", "--api-processes", "2", "--no-engine-process"), "--engine-process")
