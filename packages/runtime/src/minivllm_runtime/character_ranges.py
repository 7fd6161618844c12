r"""The characters that an atom of a regular expression stands for (ECMA-262, 22.2.1), as ranges of code points.

They are read as with the flag u: a character is a code point, not a half of it, and letters have no escapes but those
that mean something. Other characters may have one, and classes may be like [\w-.], as without the flag (annex B).
"""

import re
from collections.abc import Iterable, Sequence

Ranges = Sequence[tuple[int, int]]
"""First and last code points."""

ATOM = r"""(?:
    \\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}  # halves of a character
  | \\u\{[0-9a-fA-F]+\} | \\u[0-9a-fA-F]{4} | \\x[0-9a-fA-F]{2} | \\c[A-Za-z] | \\[0-9]+ | \\?.
)"""
"""A character, an escape or what looks like one, with the flags DOTALL and VERBOSE."""

_ITEM = re.compile(rf"(?P<first>{ATOM}) (?: - (?P<last>{ATOM}) )?", re.DOTALL | re.VERBOSE)
_LAST_CODE_POINT = 0x10FFFF
_UNWRITABLE = ((0, 0x1F), (0x22, 0x22), (0x5C, 0x5C), (0xD800, 0xDFFF))
"""What a JSON text in UTF-8 cannot have in a string as itself (RFC 8259, section 7)."""


def other_than(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """All other code points, in order, for ranges in any order."""
    others = []
    start = 0
    for first, last in sorted(ranges):
        if start < first:
            others.append((start, first - 1))
        start = max(start, last + 1)
    return [*others, (start, _LAST_CODE_POINT)] if start <= _LAST_CODE_POINT else others


def writable(ranges: Ranges) -> Ranges:
    """Those that may stand in a JSON string as themselves, in order."""
    return other_than([*other_than(ranges), *_UNWRITABLE])


_DIGITS = ((0x30, 0x39),)
_WORD = (*_DIGITS, (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_LINE_ENDS = ((0xA, 0xA), (0xD, 0xD), (0x2028, 0x2029))
_SPACES = (
    *((9, 0xD), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029)),
    *((0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)),
)
_ESCAPES: dict[str, Ranges] = {
    "d": _DIGITS,
    "D": other_than(_DIGITS),
    "s": _SPACES,
    "S": other_than(_SPACES),
    "w": _WORD,
    "W": other_than(_WORD),
    **{name: ((ord(code), ord(code)),) for name, code in zip("0fnrtv", "\0\f\n\r\t\v", strict=True)},
}


def atom_ranges(atom: str) -> Ranges:
    """What `ATOM` or a whole class [...] stands for.

    Raises:
        ValueError: an escape is not known, or the ends of a range are out of order.
    """
    if atom == ".":
        return other_than(_LINE_ENDS)
    if atom[0] == "[" and len(atom) > 1:
        is_negated = atom[1] == "^"
        ranges = _class_ranges(atom[1 + is_negated : -1])
        return other_than(ranges) if is_negated else ranges
    return _character_ranges(atom)


def _class_ranges(body: str) -> Ranges:
    ranges: list[tuple[int, int]] = []
    for item in _ITEM.finditer(body):
        ends = [_in_class(end) for end in item.group("first", "last") if end is not None]
        if len(ends) == 2 and all(len(end) == 1 and end[0][0] == end[0][1] for end in ends):
            ends = [((ends[0][0][0], ends[1][0][1]),)]
            if ends[0][0][0] > ends[0][0][1]:
                raise ValueError(f"the ends of the range {item[0]!r} are out of order")
        elif len(ends) == 2:
            ends.append(_character_ranges("-"))
        ranges += (each for end in ends for each in end)
    return ranges


def _in_class(atom: str) -> Ranges:
    return ((8, 8),) if atom == r"\b" else _character_ranges(atom)


def _character_ranges(atom: str) -> Ranges:
    if len(atom) == 1 and atom != "\\":
        return ((ord(atom), ord(atom)),)
    kind, rest = atom[1:2], atom[2:]
    if not rest and kind in _ESCAPES:
        return _ESCAPES[kind]
    code = _code_point(kind, rest)
    if code is None or code > _LAST_CODE_POINT:
        raise ValueError(f"the escape {atom!r} is not supported")
    return ((code, code),)


def _code_point(kind: str, rest: str) -> int | None:
    """Which character an escape of one stands for."""
    if not rest:
        return ord(kind) if kind and not (kind.isascii() and kind.isalnum()) else None
    if kind == "c":
        return ord(rest) % 32
    if kind == "u" and "\\" in rest:
        return ord(bytes.fromhex(rest.replace("\\u", "")).decode("utf-16-be"))
    return int(rest.strip("{}"), 16) if kind in "ux" else None
