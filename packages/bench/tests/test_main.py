"""The program's end by a signal, on real processes."""

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .processes import children, is_running

FAULTY = Path(__file__).parent / "soak" / "faulty_server.py"


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
    _, err = process.communicate(timeout=120)
    assert process.returncode == status
    assert not is_running(server)
    assert not re.search("Traceback", err)
