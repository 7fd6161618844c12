import pytest

from minivllm_bench.cli import main


def test_no_command_is_one_line(capsys):
    assert main([]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--help"], ["offline", "--help"]])
def test_help_is_no_error(arguments, capsys):
    assert main(arguments) == 0
    assert "offline" in capsys.readouterr().out
