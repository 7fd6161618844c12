from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from minivllm_bench.command_options import command


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    place: Annotated[str, typer.Option(help="Where to.")]
    times: Annotated[int, typer.Option(min=1, help="How often.")] = 2
    tags: Annotated[list[str] | None, typer.Option("--tag", help="What it is about.")] = None


@pytest.fixture
def run():
    seen = []

    def travel(options: Options) -> None:
        """Go there."""
        seen.append(options)

    app = typer.Typer()
    app.command("travel")(command(Options, travel))

    def invoke(*arguments):
        return CliRunner().invoke(app, arguments), seen

    return invoke


def test_the_fields_are_the_options(run):
    result, seen = run("--place", "sea", "--times", "3", "--tag", "a", "--tag", "b")
    assert result.exit_code == 0
    assert seen == [Options(place="sea", times=3, tags=["a", "b"])]


def test_defaults_are_those_of_the_fields(run):
    _, seen = run("--place", "sea")
    assert seen == [Options(place="sea")]


@pytest.mark.parametrize(
    "arguments", [[], ["--place", "sea", "--times", "0"], ["--place", "sea", "--times", "x"]]
)
def test_what_the_fields_do_not_allow_is_refused(run, arguments):
    result, seen = run(*arguments)
    assert (result.exit_code, seen) == (2, [])


def test_the_help_is_that_of_the_function_and_the_fields(run):
    result, _ = run("--help")
    assert "Go there." in result.output
    assert "How often." in result.output
