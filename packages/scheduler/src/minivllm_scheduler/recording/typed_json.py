"""Plain JSON to the types that an annotation promises, and back; whatever does not match is refused by its place.

Dataclasses are objects; named tuples are arrays in the order of their fields; sets are sorted arrays.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from minivllm_scheduler.errors import InvalidRecording

_Reader = Callable[[object], Any]
"""Turns a JSON value into a typed one, or raises `_Misfit`."""


class _Misfit(Exception):
    """A value of the wrong type; the place is put together on the way out, so that a sound value costs none."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.place = ""
        self.problem = problem

    def inside(self, part: str) -> "_Misfit":
        self.place = part + self.place
        return self


def encode(value: object) -> str:
    """JSON of a value made of dataclasses, tuples, sets, strings, numbers, booleans and None, on one line."""
    return json.dumps(value, default=_plain, separators=(",", ":"))


def _plain(value: object) -> object:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no JSON form here: {value!r}")


def decode(hint: Any, value: object, place: str) -> Any:
    """The typed value of a JSON value.

    Args:
        hint: Its type: an annotation made of dataclasses, named tuples, arrays, dicts and scalars.
        value: What `json.loads` gave.
        place: Where it stands, for the error.

    Raises:
        InvalidRecording: The JSON is of another type; the message names the place within `value`.
    """
    try:
        return _reader(hint)(value)
    except _Misfit as misfit:
        raise InvalidRecording(f"{place}{misfit.place}{misfit.problem}") from misfit


@cache
def _reader(hint: Any) -> _Reader:
    if hint in (str, int, bool):
        return _scalar(hint)
    if hint is float:
        return _number
    if is_dataclass(hint):
        return _object(hint)
    if isinstance(hint, type) and issubclass(hint, tuple):
        return _record(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is UnionType and NoneType in arguments:
        return _optional(_reader(next(each for each in arguments if each is not NoneType)))
    if origin is dict:
        return _mapping(_reader(arguments[1]))
    return _array(frozenset if origin is frozenset else tuple, _reader(arguments[0]))


def _wrong(value: object, expected: str) -> _Misfit:
    shown = repr(value)
    return _Misfit(f" is {shown if len(shown) <= 80 else shown[:77] + '...'}, it must be {expected}")


def _scalar(kind: type) -> _Reader:
    def read(value: object) -> object:
        if type(value) is not kind:
            raise _wrong(value, f"of type {kind.__name__}")
        return value

    return read


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(value, "a number")
    return value


def _optional(inner: _Reader) -> _Reader:
    return lambda value: None if value is None else inner(value)


def _mapping(inner: _Reader) -> _Reader:
    def read(value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _wrong(value, "an object")
        return {name: _read_part(inner, each, f".{name}") for name, each in value.items()}

    return read


def _array(container: Callable[[Any], Any], inner: _Reader) -> _Reader:
    def read(value: object) -> Any:
        if not isinstance(value, list):
            raise _wrong(value, "an array")
        items: list[Any] = []
        try:
            for each in value:
                items.append(inner(each))  # noqa: PERF401 - the number of items tells the place of a misfit
        except _Misfit as misfit:
            raise misfit.inside(f"[{len(items)}]") from None
        return container(items)

    return read


def _record(kind: type) -> _Reader:
    """A NamedTuple, from an array of its fields."""
    inner = {name: _reader(hint) for name, hint in get_type_hints(kind).items()}

    def read(value: object) -> Any:
        if not isinstance(value, list) or len(value) != len(inner):
            raise _wrong(value, f"an array of {len(inner)}: {', '.join(inner)}")
        pairs = zip(inner.items(), value, strict=True)
        return kind(*(_read_part(part, each, f".{name}") for (name, part), each in pairs))

    return read


def _object(kind: Any) -> _Reader:
    """A dataclass, from an object of its fields; those with a default may be missing."""
    hints = get_type_hints(kind)
    inner = {field.name: _reader(hints[field.name]) for field in fields(kind)}
    required = {field.name for field in fields(kind) if field.default is MISSING}

    def read(value: object) -> Any:
        if not isinstance(value, dict):
            raise _wrong(value, "an object")
        if missing := sorted(required - value.keys()):
            raise _Misfit(f" lacks {missing[0]!r}")
        if unknown := sorted(value.keys() - inner.keys()):
            raise _Misfit(f" has a field {unknown[0]!r}, it may have {', '.join(inner)}")
        arguments = {name: _read_part(inner[name], each, f".{name}") for name, each in value.items()}
        try:
            return kind(**arguments)
        except ValueError as error:  # its own check of the values
            raise _Misfit(f": {error}") from error

    return read


def _read_part(reader: _Reader, value: object, part: str) -> Any:
    try:
        return reader(value)
    except _Misfit as misfit:
        raise misfit.inside(part) from None
