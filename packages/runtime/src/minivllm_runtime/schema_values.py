"""Whether the keywords that the compiler reads in a JSON schema have values that it can follow.

xgrammar 0.2.9 takes some wrong values for others (a maxLength of -1 for none, 2^32 + 1 properties for one), writes
integers of more than 64 bits as floats, and a number within bounds with six decimals at most: where no such number
is, it writes nothing at all.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any, TypeGuard

from minivllm_runtime.errors import InvalidParameter

_DECIMALS = 6
_MOST_COUNTED = 2**31 - 1
_INTEGERS = 2**63


def check_values(node: dict[str, Any], types: Iterable[str]) -> None:
    """Check the values of the keywords of a schema that are about some types.

    Raises:
        InvalidParameter: naming the keyword.
    """
    for kind in types:
        for keyword, (is_right, form) in _FORMS.get(kind, {}).items():
            if keyword in node and not is_right(node[keyword]):
                raise InvalidParameter("json_schema", f"json_schema has a wrong {keyword}: it must be {form}")
        if kind == "number":
            _check_decimals(node)


def check_constants(values: Iterable[Any]) -> None:
    """Check what a schema gives as `const` or in `enum`.

    Raises:
        InvalidParameter: naming a number in it that would be written as another one.
    """
    for number in _numbers_in(values):
        if not _is_exact(number):
            raise InvalidParameter(
                "json_schema", f"json_schema has the constant {str(number)[:40]}, which has more than 64 bits"
            )


def _numbers_in(values: Iterable[Any]) -> Iterator[int | float]:
    for value in values:
        if isinstance(value, dict):
            yield from _numbers_in(value.values())
        elif isinstance(value, list):
            yield from _numbers_in(value)
        elif _is_number(value):
            yield value


def _check_decimals(node: dict[str, Any]) -> None:
    """Whether a number within the bounds can be written; integers stand for numbers, in steps of the last decimal."""
    steps = {name: Fraction(str(node[name])) * 10**_DECIMALS for name in _BOUNDS if name in node}
    lowest, highest = -math.inf, math.inf
    if "minimum" in steps:
        lowest = math.ceil(steps["minimum"])
    if "exclusiveMinimum" in steps:
        lowest = max(lowest, math.floor(steps["exclusiveMinimum"]) + 1)
    if "maximum" in steps:
        highest = math.floor(steps["maximum"])
    if "exclusiveMaximum" in steps:
        highest = min(highest, math.ceil(steps["exclusiveMaximum"]) - 1)
    if lowest > highest:
        bounds = ", ".join(f"{name} {node[name]}" for name in steps)
        raise InvalidParameter(
            "json_schema",
            f"json_schema cannot be followed: no number of at most {_DECIMALS} decimals has {bounds[:200]}",
        )


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole_in_64_bits(value: object) -> bool:
    if isinstance(value, float):
        return abs(value) < _INTEGERS
    return _is_number(value) and -_INTEGERS <= value < _INTEGERS


def _is_exact(value: object) -> bool:
    """Whether a number has an integer of 64 bits or a float for itself."""
    if isinstance(value, float):
        return math.isfinite(value)
    return _is_whole_in_64_bits(value) or _is_float(value)


def _is_float(value: object) -> bool:
    """Whether a number is exactly a finite float, as the compiler holds the bounds of numbers."""
    try:
        return _is_number(value) and math.isfinite(value) and float(value) == value
    except OverflowError:
        return False


def _is_above_0(value: object) -> bool:
    return _is_number(value) and value > 0


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_COUNTED


def _is_most(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_Form = tuple[Callable[[object], bool], str]
_COUNT: _Form = (_is_count, f"an integer from 0 to {_MOST_COUNTED}")
_MOST: _Form = (_is_most, "an integer of at least 0")
_TEXT: _Form = (_is_text, "a string")
_MULTIPLE: _Form = (_is_above_0, "a number above 0")
_FORMS: dict[str, dict[str, _Form]] = {
    "string": {"minLength": _COUNT, "maxLength": _MOST, "pattern": _TEXT, "format": _TEXT},
    "integer": {
        **dict.fromkeys(_BOUNDS, (_is_whole_in_64_bits, "a number of 64 bits")),
        "multipleOf": _MULTIPLE,
    },
    "number": {**dict.fromkeys(_BOUNDS, (_is_float, "a number that is a float")), "multipleOf": _MULTIPLE},
    "array": {"minItems": _COUNT, "maxItems": _MOST},
    "object": {
        "minProperties": _COUNT,
        "maxProperties": _COUNT,
        "required": (_are_texts, "an array of strings"),
    },
}
