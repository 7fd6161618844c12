from typing import Annotated, Literal

import pytest
import typer
from pydantic import Field
from pydantic_settings import BaseSettings
from typer.testing import CliRunner

from minivllm_server.options import given, with_options_of


class Settings(BaseSettings):
    kind: Literal["a", "b"] = Field("a", description="A kind.")
    max_things: int | None = Field(None, description="A number.")
    is_on: bool = Field(True, description="A switch.")
    names: tuple[str, ...] = Field((), description="Some names.")


def run(*arguments):
    app = typer.Typer(rich_markup_mode=None)
    seen = {}

    @app.command()
    @with_options_of(Settings)
    def command(text: str, times: Annotated[int, typer.Option()] = 1, **options) -> None:
        seen.update(text=text, times=times, options=given(options))

    result = CliRunner().invoke(app, list(arguments))
    return seen, result


def test_a_commands_own_parameters_stay():
    seen, _ = run("hello", "--times", "2")
    assert seen == {"text": "hello", "times": 2, "options": {}}


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["--max-things", "7"], {"max_things": "7"}),
        (["--kind", "nonsense"], {"kind": "nonsense"}),
        (["--no-is-on"], {"is_on": False}),
        (["--is-on"], {"is_on": True}),
        (["--names", "x", "--names", "y"], {"names": ["x", "y"]}),
    ],
)
def test_every_setting_is_an_option_that_the_settings_validate(arguments, options):
    assert run("hello", *arguments)[0]["options"] == options


def test_help_shows_description_values_and_default():
    _, result = run("--help")
    assert "--kind a|b" in result.output
    assert "A kind.  [default: a]" in result.output
    assert "--max-things INTEGER" in result.output
