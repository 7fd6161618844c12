import os
import subprocess
import sys

import pytest

from minivllm_bench.cli import main

AT_AN_IMPORT = """
import os, runpy, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
sys.argv[1:] = {arguments}
runpy.run_module("minivllm_bench", run_name="__main__", alter_sys=True)
"""


def test_no_command_shows_the_help(capsys):
    assert main([]) == 2
    shown = capsys.readouterr()
    assert main(["--help"]) == 0
    assert shown == capsys.readouterr()
    assert "..." not in shown.out.partition("Commands:")[2]


@pytest.mark.parametrize("arguments", [["--help"], ["offline", "--help"]])
def test_help_is_no_error(arguments, capsys):
    assert main(arguments) == 0
    assert "offline" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["evaluate"], ["offline", "--tensor-parallel"], ["truth"]])
def test_a_wrong_command_line_is_one_line(arguments, capsys):
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("typer", ["--help"]),
        ("minivllm_bench.cli", ["--help"]),
        ("minivllm_scheduler.simulation.roofline_cost", ["--help"]),
        ("numpy._core.multiarray", ["offline", "--workloads", "decode_b1"]),
        ("torch", ["offline", "--workloads", "decode_b1"]),
    ],
)
def test_ctrl_c_at_any_moment_is_one_line(module, arguments):
    result = subprocess.run(
        [sys.executable, "-c", AT_AN_IMPORT.format(module=module, arguments=arguments)],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "minivllm-bench: interrupted\n")
