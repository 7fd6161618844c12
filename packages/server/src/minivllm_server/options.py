"""Command line options made from settings: each setting is declared once, with its default and its help."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from minivllm_runtime.errors import InvalidParameter
from minivllm_server.setting_names import SettingNames, flag_of
from minivllm_server.violations import describe_violation

OptionValue = str | bool | list[str] | None

Settings = TypeVar("Settings", bound=BaseSettings)


class InvalidOption(Exception):
    """A flag or a variable has a value that cannot be used; the message is one line in the user's words."""


def with_options_of(settings: type[BaseSettings]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Returns a decorator that replaces a command's `**options` by one option per field of `settings`.

    The options are plain strings (booleans: a pair of flags), so that `settings` validates flags and
    environment variables alike. An option that was not given is None; `settings_from` leaves it out.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command)
        own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        options = [_parameter(name, field) for name, field in settings.model_fields.items()]
        command.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in (*own, *options)}
        return command

    return decorate


@contextmanager
def settings_from(kind: type[Settings], options: Mapping[str, OptionValue]) -> Iterator[Settings]:
    """Gives the settings that the options of a command and the environment make.

    Args:
        kind: What to make.
        options: One for each of its fields; those that are None were not given.

    Raises:
        InvalidOption: A value is wrong, or turned out wrong inside the context.
    """
    flags: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    try:
        settings = kind(**flags)
    except ValidationError as error:
        violations = (_describe(kind, flags, violation) for violation in error.errors())
        raise InvalidOption("; ".join(violations)) from error
    names = SettingNames(kind.model_fields, settings.model_fields_set - flags.keys())
    try:
        yield settings
    except InvalidParameter as error:
        raise InvalidOption(names.in_message(str(error), error.param)) from error


def _describe(
    kind: type[BaseSettings], flags: Mapping[str, OptionValue], violation: Mapping[str, Any]
) -> str:
    """One line about a field, or about several that contradict each other: these are found in the input."""
    field, given = violation["loc"][:1], violation["loc"][:1] or violation["input"]
    names = SettingNames(kind.model_fields, set(given) - flags.keys())
    if field:
        return describe_violation(violation, [names.of(*field)])
    return names.in_message(describe_violation(violation, ()))


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    flag = flag_of(name)
    kind: Any = str | None
    if _value_type(field) is bool:
        kind, flag = bool | None, f"{flag}/--no-{flag[2:]}"
    elif _is_list(field):
        kind = list[str] | None
    option = typer.Option(flag, help=_help(field), metavar=_metavar(field))
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
    )


def _is_list(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is tuple


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
    """The description, and the default or that there may be several."""
    if _is_list(field):
        return f"{field.description} May be given several times."
    match field.default:
        case None:
            return str(field.description)
        case bool(is_on):
            return f"{field.description}  [default: {'on' if is_on else 'off'}]"
        case value:
            return f"{field.description}  [default: {value}]"
