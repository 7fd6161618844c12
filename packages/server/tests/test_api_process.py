import subprocess
import sys


def test_it_ends_quietly_where_the_parent_is_gone_before_it_said_anything():
    finished = subprocess.run(
        [sys.executable, "-m", "minivllm_server.api_process"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert (finished.returncode, finished.stdout, finished.stderr) == (1, b"", b"")
