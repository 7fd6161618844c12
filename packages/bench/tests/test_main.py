"""The program's end by a signal, on real processes."""

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

FAULTY = Path(__file__).parent / "soak" / "faulty_server.py"


def children(pid):
    return [
        int(child)
        for thread in Path(f"/proc/{pid}/task").iterdir()
        for child in (thread / "children").read_text().split()
    ]


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_server_that_was_started_ends_with_its_program(number, status, tmp_path):
    sign = tmp_path / "sign"
    start = shlex.join([sys.executable, str(FAULTY), "{port}", "all is well", str(sign)])
    process = subprocess.Popen(
        [sys.executable, "-m", "minivllm_bench", "soak", "--minutes", "10", "--start", start],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not sign.exists():
        assert process.poll() is None
    (server,) = children(process.pid)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == status
    assert not is_running(server)
    assert not re.search("Traceback", err)
