"""Command line options made from settings: each setting is declared once, with its default and its help."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

OptionValue = str | bool | list[str] | None


def with_options_of(settings: type[BaseSettings]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Returns a decorator that replaces a command's `**options` by one option per field of `settings`.

    The options are plain strings (booleans: a pair of flags), so that `settings` validates flags and
    environment variables alike. An option that was not given is None; `given` leaves it out.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command)
        own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        options = [_parameter(name, field) for name, field in settings.model_fields.items()]
        command.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in (*own, *options)}
        return command

    return decorate


def given(options: dict[str, OptionValue]) -> dict[str, OptionValue]:
    """Returns the options that were given on the command line."""
    return {name: value for name, value in options.items() if value is not None}


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    flag = f"--{name.replace('_', '-')}"
    kind: Any = str | None
    if _value_type(field) is bool:
        kind, flag = bool | None, f"{flag}/--no-{flag[2:]}"
    elif get_origin(field.annotation) is tuple:
        kind = list[str] | None
    option = typer.Option(flag, help=_help(field), metavar=_metavar(field))
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
    )


def _value_type(field: FieldInfo) -> Any:
    """The type of a field's value where it is not None, of its elements where it is a tuple."""
    if not get_args(field.annotation) or get_origin(field.annotation) is Literal:
        return field.annotation
    return get_args(field.annotation)[0]


def _metavar(field: FieldInfo) -> str:
    value_type = _value_type(field)
    if get_origin(value_type) is Literal:
        return "|".join(get_args(value_type))
    return {str: "TEXT", int: "INTEGER", float: "NUMBER", bool: ""}[value_type]


def _help(field: FieldInfo) -> str:
    shown = "" if field.default is None or field.default == () else f"  [default: {field.default}]"
    return f"{field.description}{shown}"
