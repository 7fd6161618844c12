from typing import Annotated, Literal

import pytest
import typer
from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from typer.testing import CliRunner

from minivllm_runtime.errors import InvalidParameter
from minivllm_server.options import InvalidOption, settings_from, with_options_of


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="MINIVLLM_")

    kind: Literal["a", "b"] = Field("a", description="A kind.")
    max_things: int | None = Field(None, description="A number.")
    is_on: bool = Field(True, description="A switch.")
    names: tuple[str, ...] = Field((), description="Some names.")

    @model_validator(mode="after")
    def _refuse_contradictions(self):
        if self.max_things == 0 and self.is_on:
            raise ValueError("max_things 0 contradicts is_on")
        return self


def run(*arguments):
    app = typer.Typer(rich_markup_mode=None)
    seen = {}

    @app.command()
    @with_options_of(Settings)
    def command(text: str, times: Annotated[int, typer.Option()] = 1, **options) -> None:
        with settings_from(Settings, options) as settings:
            seen.update(text=text, times=times, settings=settings)

    result = CliRunner().invoke(app, list(arguments))
    return seen, result


def test_a_commands_own_parameters_stay():
    seen, _ = run("hello", "--times", "2")
    assert seen == {"text": "hello", "times": 2, "settings": Settings()}


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        (["--max-things", "7"], {"max_things": 7}),
        (["--kind", "b"], {"kind": "b"}),
        (["--no-is-on"], {"is_on": False}),
        (["--is-on"], {"is_on": True}),
        (["--names", "x", "--names", "y"], {"names": ("x", "y")}),
    ],
)
def test_every_setting_is_an_option(arguments, settings):
    assert run("hello", *arguments)[0]["settings"] == Settings(**settings)


@pytest.mark.parametrize(
    ("flags", "variables", "message"),
    [
        ({"max_things": "x"}, {}, "--max-things: Input should be a valid integer, got 'x'"),
        ({}, {"MAX_THINGS": "x"}, "MINIVLLM_MAX_THINGS: Input should be a valid integer, got 'x'"),
        ({"max_things": "x"}, {"MAX_THINGS": "y"}, "--max-things: Input should be a valid integer, got 'x'"),
        (
            {"kind": "c"},
            {"MAX_THINGS": "x"},
            "--kind: Input should be 'a' or 'b', got 'c'; "
            "MINIVLLM_MAX_THINGS: Input should be a valid integer, got 'x'",
        ),
        ({"max_things": "0"}, {}, "--max-things 0 contradicts --is-on"),
        ({"is_on": True}, {"MAX_THINGS": "0"}, "MINIVLLM_MAX_THINGS 0 contradicts --is-on"),
    ],
)
def test_a_bad_value_is_told_in_the_words_of_the_user(monkeypatch, flags, variables, message):
    for name, value in variables.items():
        monkeypatch.setenv(f"MINIVLLM_{name}", value)
    with (
        pytest.raises(InvalidOption) as caught,
        settings_from(Settings, {"max_things": None, "is_on": None} | flags),
    ):
        pass
    assert str(caught.value) == message


def test_what_turns_out_wrong_later_is_told_in_them_too(monkeypatch):
    monkeypatch.setenv("MINIVLLM_KIND", "b")
    message = "kind b has no more than 3 things, max_things is 7"
    with (
        pytest.raises(InvalidOption, match="MINIVLLM_KIND b has no more than 3 things, --max-things is 7"),
        settings_from(Settings, {"max_things": "7", "kind": None}),
    ):
        raise InvalidParameter("kind", message)


def test_help_shows_description_values_default_and_repetition():
    _, result = run("--help")
    text = " ".join(result.output.split())
    assert "--kind a|b A kind. [default: a]" in text
    assert "--max-things INTEGER A number. --" in text
    assert "A switch. [default: on]" in text
    assert "--names TEXT Some names. May be given several times." in text
