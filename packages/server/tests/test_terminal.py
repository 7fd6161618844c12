import os
import subprocess
import sys

import pytest

WRITE = "from minivllm_server.terminal import OutputFailed, announce, write\n"


def run(program, stdout=subprocess.PIPE):
    return subprocess.run(
        [sys.executable, "-c", WRITE + program], stdout=stdout, stderr=subprocess.PIPE, text=True, check=False
    )


@pytest.fixture
def full():
    with open("/dev/full", "w") as file:  # noqa: PTH123
        yield file


def test_text_is_written_at_once():
    assert run("write('caf\u00e9\\n'); import os; os._exit(0)").stdout == "caf\u00e9\n"


def test_characters_that_the_terminal_cannot_show_or_send_are_no_failure():
    program = (
        "from minivllm_server.terminal import tolerate_any_encoding, write; tolerate_any_encoding()\n"
        "write('caf\u00e9 ' + input())"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        input="\u65e5".encode(),
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert (result.stderr, result.stdout) == (b"", b"caf? ???")


def test_a_full_disk_is_told_once_and_not_again_at_the_end(full):
    program = (
        "try:\n    write('x')\nexcept OutputFailed as error:\n    import sys; print(error, file=sys.stderr)"
    )
    result = run(program, full)
    assert result.returncode == 0
    assert result.stderr == "cannot write the output: No space left on device\n"


def test_an_announcement_that_nobody_gets_is_no_failure(full):
    result = run("announce('x'); announce('y')", full)
    assert (result.returncode, result.stderr) == (0, "")
