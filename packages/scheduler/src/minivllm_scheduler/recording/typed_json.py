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

Decoder = Callable[[object, str], Any]
"""Turns a JSON value into a typed one; the second argument is its place, for the error."""


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


@cache
def decoder(hint: Any) -> Decoder:
    """What reads values of an annotated type.

    Its decoders raise InvalidRecording, naming the place and the value, where the JSON is of another type.
    """
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
        return _optional(decoder(next(each for each in arguments if each is not NoneType)))
    if origin is dict:
        return _mapping(decoder(arguments[1]))
    return _array(frozenset if origin is frozenset else tuple, decoder(arguments[0]))


def _refuse(place: str, value: object, expected: str) -> InvalidRecording:
    shown = repr(value)
    return InvalidRecording(
        f"{place} is {shown if len(shown) <= 80 else shown[:77] + '...'}, it must be {expected}"
    )


def _scalar(kind: type) -> Decoder:
    def decode(value: object, place: str) -> object:
        if type(value) is not kind:
            raise _refuse(place, value, f"of type {kind.__name__}")
        return value

    return decode


def _number(value: object, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refuse(place, value, "a number")
    return value


def _optional(inner: Decoder) -> Decoder:
    return lambda value, place: None if value is None else inner(value, place)


def _mapping(inner: Decoder) -> Decoder:
    def decode(value: object, place: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _refuse(place, value, "an object")
        return {name: inner(each, f"{place}.{name}") for name, each in value.items()}

    return decode


def _array(container: Callable[[Any], Any], inner: Decoder) -> Decoder:
    def decode(value: object, place: str) -> Any:
        if not isinstance(value, list):
            raise _refuse(place, value, "an array")
        return container(inner(each, f"{place}[{index}]") for index, each in enumerate(value))

    return decode


def _record(kind: type) -> Decoder:
    """A NamedTuple, from an array of its fields."""
    inner = {name: decoder(hint) for name, hint in get_type_hints(kind).items()}

    def decode(value: object, place: str) -> Any:
        if not isinstance(value, list) or len(value) != len(inner):
            raise _refuse(place, value, f"an array of {len(inner)}: {', '.join(inner)}")
        pairs = zip(inner.items(), value, strict=True)
        return kind(*(read(each, f"{place}.{name}") for (name, read), each in pairs))

    return decode


def _object(kind: Any) -> Decoder:
    """A dataclass, from an object of its fields; those with a default may be missing."""
    hints = get_type_hints(kind)
    inner = {field.name: decoder(hints[field.name]) for field in fields(kind)}
    required = {field.name for field in fields(kind) if field.default is MISSING}

    def decode(value: object, place: str) -> Any:
        if not isinstance(value, dict):
            raise _refuse(place, value, "an object")
        if missing := sorted(required - value.keys()):
            raise InvalidRecording(f"{place} lacks {missing[0]!r}")
        if unknown := sorted(value.keys() - inner.keys()):
            raise InvalidRecording(f"{place} has a field {unknown[0]!r}, it may have {', '.join(inner)}")
        arguments = {name: inner[name](each, f"{place}.{name}") for name, each in value.items()}
        try:
            return kind(**arguments)
        except ValueError as error:  # its own check of the values
            raise InvalidRecording(f"{place}: {error}") from error

    return decode
