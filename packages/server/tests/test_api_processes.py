"""Several HTTP processes: supervised, with small programs; and in front of one engine, with the bundled model."""

import logging
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from minivllm_server.api_processes import ApiProcesses, ApiProcessFailed, Assignment, Shared
from minivllm_server.back_off import BackOff
from minivllm_server.listener import bind

from .test_cli import ENVIRONMENT, SMALL, command, needs_smollm2

PROMPT = {"prompt": "The capital of France is", "max_tokens": 5, "temperature": 0}
SERVES_UNTIL_IT_IS_TOLD_TO_END = """
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
print("ready", flush=True)
signal.sigwait({signal.SIGTERM})
"""
AT_ONCE = BackOff(quick_s=3600, first_delay_s=0)
READ_ASSIGNMENT = """
import os, pathlib, signal, sys
folder = pathlib.Path(sys.argv[1])
assert sys.stdin.readline().startswith("{")
(folder / f"start-{os.getpid()}").touch()
"""


@pytest.fixture
def supervise(tmp_path):
    """Serves with programs that are given as text; says whether they came to be ready, and how many there were."""

    def supervise(program, count=2, back_off=AT_ONCE, on_ready=lambda: None, stop_timeout_s=60):
        text = [sys.executable, "-c", READ_ASSIGNMENT + program, str(tmp_path)]
        ready = []

        def note_and_go_on():
            ready.append(True)
            on_ready()

        with bind("127.0.0.1", 0) as listener:
            assignment = Assignment({}, "nowhere", listener.fileno(), Shared(str(tmp_path), "nowhere"))
            ApiProcesses(
                assignment, count, stop_timeout_s=stop_timeout_s, back_off=back_off, program=text
            ).serve(note_and_go_on)
        return bool(ready), num_started(tmp_path)

    return supervise


def num_started(folder):
    return len(list(folder.glob("start-*")))


def tell_us_to_end():
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_ends_all_of_them(supervise):
    assert supervise(SERVES_UNTIL_IT_IS_TOLD_TO_END, count=3, on_ready=tell_us_to_end) == (True, 3)


def test_a_signal_before_they_are_ready_is_a_graceful_end(supervise):
    assert supervise("os.kill(os.getppid(), signal.SIGTERM); signal.pause()")[0] is False


@pytest.mark.parametrize("is_ready", [True, False])
def test_one_that_hangs_is_killed_when_its_time_is_over(supervise, tmp_path, is_ready):
    program = f"""
signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGSTOP))
{'print("ready", flush=True)' if is_ready else "os.kill(os.getppid(), signal.SIGTERM)"}
while True:
    signal.pause()
"""
    with pytest.raises(ApiProcessFailed, match="exit code -9 when it was told to end"):
        supervise(program, count=1, on_ready=tell_us_to_end, stop_timeout_s=0.2)
    assert not any(is_running(int(start.name.split("-")[1])) for start in tmp_path.glob("start-*"))


def test_one_that_cannot_start_is_a_failure_and_leaves_nobody(supervise, tmp_path):
    # The other one goes on until it is told to end.
    program = f"""
try:
    (folder / "first").touch(exist_ok=False)
except FileExistsError:
    sys.exit(3)
{SERVES_UNTIL_IT_IS_TOLD_TO_END}
"""
    with pytest.raises(ApiProcessFailed, match="exit code 3 before it could serve"):
        supervise(program)
    assert not any(is_running(int(start.name.split("-")[1])) for start in tmp_path.glob("start-*"))


def test_one_that_fails_is_replaced(supervise, caplog):
    program = f"""
if len(list(folder.glob("start-*"))) == 1:
    print("ready", flush=True)
    sys.exit(3)
if len(list(folder.glob("start-*"))) == 2:
    os.kill(os.getppid(), signal.SIGTERM)
{SERVES_UNTIL_IT_IS_TOLD_TO_END}
"""
    assert supervise(program, count=1) == (True, 2)
    (record,) = caplog.records
    assert record.getMessage().startswith("an HTTP process ended with exit code 3;")


def test_one_that_fails_again_and_again_is_given_up_and_ends_the_others(supervise, tmp_path):
    program = f"""
try:
    (folder / "first").touch(exist_ok=False)
except FileExistsError:
    print("ready", flush=True)
    sys.exit(3)
{SERVES_UNTIL_IT_IS_TOLD_TO_END}
"""
    with pytest.raises(ApiProcessFailed, match="failed 4 times in a row, at last with exit code 3"):
        supervise(program, back_off=BackOff(quick_s=3600, first_delay_s=0, most_failures=4))
    assert num_started(tmp_path) == 1 + 4


def test_replacements_that_cannot_start_are_given_up(supervise, tmp_path):
    program = """
if len(list(folder.glob("start-*"))) == 1:
    print("ready", flush=True)
sys.exit(3)
"""
    with pytest.raises(ApiProcessFailed, match="3 times in a row"):
        supervise(program, count=1, back_off=BackOff(quick_s=3600, first_delay_s=0, most_failures=3))
    assert num_started(tmp_path) == 3


def test_failures_that_are_not_quick_are_never_given_up(supervise, tmp_path):
    program = """
print("ready", flush=True)
if len(list(folder.glob("start-*"))) == 9:
    os.kill(os.getppid(), signal.SIGTERM)
    signal.pause()
"""
    assert supervise(program, count=1, back_off=BackOff(quick_s=0, most_failures=3)) == (True, 9)


class TellUsToEnd(logging.Handler):
    """Does so when something is logged."""

    def emit(self, record):
        tell_us_to_end()


def test_a_signal_ends_the_wait_for_a_replacement(supervise):
    patient = BackOff(quick_s=3600, first_delay_s=3600)
    logger, handler = logging.getLogger("minivllm_server.api_processes"), TellUsToEnd()
    logger.addHandler(handler)
    try:
        assert supervise('print("ready", flush=True)', count=1, back_off=patient) == (True, 1)
    finally:
        logger.removeHandler(handler)


def test_a_bad_end_is_a_failure_after_a_signal_too(supervise):
    program = SERVES_UNTIL_IT_IS_TOLD_TO_END + "os.abort()"
    with pytest.raises(ApiProcessFailed, match="exit code -6 when it was told to end"):
        supervise(program, on_ready=tell_us_to_end)


@contextmanager
def started(*arguments, processes=2, stdout=subprocess.PIPE, stderr=subprocess.PIPE):
    """A server of the bundled model, killed in the end."""
    with subprocess.Popen(
        command("serve", "--port", "0", "--api-processes", str(processes), *SMALL, *arguments),
        stdout=stdout,
        stderr=stderr,
        text=True,
        env=ENVIRONMENT,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def served(*arguments, processes=2):
    """(URL, process) of one that is ready."""
    with started(*arguments, processes=processes) as process:
        for line in process.stdout:
            if found := re.search(r"ready at (http://\S+)", line):
                yield found[1], process
                break
        else:
            pytest.fail(process.stderr.read())


def end(process):
    """Exit code after SIGTERM, and the lines of the log that are not about requests."""
    process.send_signal(signal.SIGTERM)
    return end_of(process)


def end_of(process):
    """The same of a process that was told to end."""
    _, errors = process.communicate(timeout=120)
    return process.returncode, [line for line in errors.splitlines() if " INFO " not in line]


def programs_of(process):
    """Process ids of the children, by the module they run."""
    programs = {}
    for children in Path(f"/proc/{process.pid}/task").glob("*/children"):
        for pid in _read(children).split():
            arguments = _read(Path(f"/proc/{pid}/cmdline")).split("\0")
            if len(arguments) > 2:  # not one that ends at this moment
                programs.setdefault(arguments[2], []).append(int(pid))
    return programs


def _read(file):
    """What /proc says of a thread or process, nothing of one that has just ended."""
    try:
        return file.read_text()
    except OSError:
        return ""


def http_processes_of(process):
    return programs_of(process).get("minivllm_server.api_process", [])


def engine_of(process):
    return programs_of(process)["minivllm_runtime.engine.process"][0]


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def metric(url, name):
    text = httpx.get(f"{url}/metrics", timeout=60).text
    return float(re.search(rf"^minivllm:{name}{{[^}}]*}} (\S+)$", text, re.MULTILINE)[1])


def open_stream(url, **body):
    return httpx.stream("POST", f"{url}/v1/completions", json={**PROMPT, "stream": True, **body}, timeout=60)


@needs_smollm2
def test_serve_together_survive_one_another_and_end_together(becomes_true):
    with served() as (url, process):
        first, second = http_processes_of(process)

        def complete():
            answer = httpx.post(f"{url}/v1/completions", json=PROMPT, timeout=60)
            assert answer.status_code == 200
            return answer.json()["choices"][0]["text"]

        texts = {complete() for _ in range(4)}
        assert len(texts) == 1
        # Whichever process answers, it knows of all requests.
        assert metric(url, "e2e_request_latency_seconds_count") == 4
        assert metric(url, "generation_tokens_total") == 20

        os.kill(first, signal.SIGKILL)
        assert becomes_true(lambda: len(set(http_processes_of(process)) - {first}) == 2)
        assert {complete() for _ in range(4)} == texts
        assert second in http_processes_of(process)

        children = [engine_of(process), *http_processes_of(process)]
        code, (complaint,) = end(process)
        assert code == 0
        assert "ended with exit code -9; its requests are lost" in complaint
        assert not any(map(is_running, children))


@needs_smollm2
def test_a_signal_while_they_start_is_a_graceful_end(becomes_true):
    with started() as process:
        assert becomes_true(lambda: http_processes_of(process))
        assert end(process) == (0, [])


@needs_smollm2
def test_a_signal_lets_a_stream_finish_that_an_engine_process_writes():
    with (
        served("--drain-timeout-s", "600", processes=1) as (url, process),
        open_stream(url, max_tokens=60, ignore_eos=True) as answer,
    ):
        lines = answer.iter_lines()
        next(lines)
        process.send_signal(signal.SIGTERM)
        assert [line for line in lines if line][-1] == "data: [DONE]"
        assert end_of(process) == (0, [])


@needs_smollm2
@pytest.mark.parametrize("processes", [1, 2])
def test_a_killed_engine_ends_streams_is_an_ill_health_of_all_and_is_logged_once(becomes_true, processes):
    with served(processes=processes) as (url, process):
        with open_stream(url, max_tokens=900, ignore_eos=True) as answer:
            lines = answer.iter_lines()
            next(lines)
            os.kill(engine_of(process), signal.SIGKILL)
            assert '"engine_dead"' in [line for line in lines if line][-1]
        # Each of them hears of it, and any may answer.
        for _ in range(10):
            assert becomes_true(lambda: httpx.get(f"{url}/health", timeout=60).status_code == 503)
        code, complaints = end(process)
        assert code == 0
        assert len([line for line in complaints if "the engine process ended with exit code -9" in line]) == 1


@needs_smollm2
def test_a_hanging_engine_is_an_ill_health_until_it_goes_on(becomes_true):
    with served("--engine-timeout-s", "0.3") as (url, process):

        def health():
            return httpx.get(f"{url}/health", timeout=60)

        os.kill(engine_of(process), signal.SIGSTOP)
        try:
            assert becomes_true(lambda: "the engine has not answered for" in health().text)
        finally:
            os.kill(engine_of(process), signal.SIGCONT)
        for _ in range(10):
            assert becomes_true(lambda: health().status_code == 200)
        assert httpx.post(f"{url}/v1/completions", json=PROMPT, timeout=60).status_code == 200


@needs_smollm2
def test_a_killed_parent_leaves_nobody_behind(becomes_true):
    with served() as (_, process):
        children = [pid for pids in programs_of(process).values() for pid in pids]
        assert len(children) == 3
        process.kill()
        assert becomes_true(lambda: not any(map(is_running, children)))


@needs_smollm2
def test_counters_of_the_engine_never_fall_whoever_is_asked():
    with served() as (url, _), httpx.Client(base_url=url, timeout=60) as client:
        body = PROMPT | {"max_tokens": 60, "ignore_eos": True, "stream": True}
        with client.stream("POST", "/v1/completions", json=body) as answer:
            # A connection each: any process may take it.
            steps = [metric(url, "engine_steps_total") for _ in answer.iter_lines()]
        assert steps == sorted(steps)
        assert steps[-1] >= 60


@needs_smollm2
def test_limits_of_a_key_count_over_all_processes(becomes_true):
    # One request takes more than the tokens of several minutes.
    with served("--api-key", "k", "--tokens-per-minute", "1") as (url, process):
        headers = {"authorization": "Bearer k"}

        def status():
            with httpx.Client() as client:  # a connection each: any process may take it
                return client.post(
                    f"{url}/v1/completions", json=PROMPT, headers=headers, timeout=120
                ).status_code

        assert status() == 200
        assert becomes_true(lambda: status() == 429)
        assert {status() for _ in range(6)} == {429}
        # The count outlives whoever made it.
        killed = http_processes_of(process)
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        assert becomes_true(lambda: len(set(http_processes_of(process)) - set(killed)) == 2)
        assert status() == 429
