r"""A regular expression of a JSON schema (ECMA-262, 22.2.1), written so that a string that follows it is JSON.

xgrammar 0.2.9 takes what JSON must escape out of a class only if others are left and it knows the whole expression. It
ignores anchors within one, and reads the halves of \ud83d\ude00 apart. So each atom is written as the code points that
it stands for and that a JSON string may have: then it does not matter how they are compiled.

It also merges states of its automaton that are not equal: (ab+)? lets "b" in, and ac?|a "acc". It hardly
ever does where a group of nothing follows each repetition and {0,1} stands for the question mark.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from minivllm_runtime.character_ranges import ATOM, atom_ranges, writable
from minivllm_runtime.errors import InvalidParameter

_PIECE = re.compile(
    rf"""
    (?P<either> \| )
    | (?P<open> \( (?! \? ) | \(\?: | \(\?<[A-Za-z_$][\w$]*> )
    | (?P<close> \) )
    | (?P<anchor> [\^$] )
    | (?P<times> (?: [*+?] | \{{\d+(?:,\d*)?\}} ) \?? )
    | (?P<unsupported> \(\?<?[=!] | \(\?<? | \[ (?! (?: \\. | [^\]\\] )* \] ) .* )
    | (?P<atom> \[ (?: \\. | [^\]\\] )* \] | {ATOM} )
    """,
    re.DOTALL | re.VERBOSE | re.ASCII,
)
_CLASS_COST = 16
_MOST_DIGITS = 9


class SchemaPattern:
    """A regular expression, cut into pieces.

    Args:
        text: The expression.

    Raises:
        InvalidParameter: it is none, uses what is not supported, or has an atom that no JSON string can follow.
    """

    def __init__(self, text: str) -> None:
        try:
            self._pieces = _explicit_pieces(text)
        except ValueError as error:
            reason = f"json_schema has the pattern {text[:100]!r}: {error}"
            raise InvalidParameter("json_schema", reason) from error

    @property
    def explicit(self) -> str:
        """The same in ASCII, its atoms as code points. It is for a whole text, so its anchors are left out."""
        return "".join(piece if _Times.read(piece) is None else f"{piece}()" for piece in self._pieces)

    @property
    def lengths(self) -> tuple[int, float]:
        """The fewest and the most characters of a text that follows it; infinity if there is no most."""
        groups: list[list[list[tuple[int, float]]]] = [[[]]]
        for piece in self._pieces:
            parts = groups[-1][-1]
            if piece == "(":
                groups.append([[]])
            elif piece == ")":
                length = _length_of(groups.pop())
                groups[-1][-1].append(length)
            elif piece == "|":
                groups[-1].append([])
            elif (limits := _limits(piece)) is None:
                parts.append((1, 1))
            else:
                least, most = parts.pop()
                parts.append((least * limits[0], most * limits[1] if most and limits[1] else 0))
        return _length_of(groups[0])

    def cost(self, most: int) -> int:
        """What compiling it over a vocabulary may cost.

        A character or group counts 1, a class of characters 16: many tokens of a vocabulary go through it. What is
        repeated counts as often as it may stand there. The sum is multiplied by the number of places where the length
        of what matches is open: they are tried together.

        Returns:
            The product; `most` + 1 for whatever is above `most`.
        """
        groups = [_Part()]
        last = _Part()
        for piece in self._pieces:
            if piece[0] == "(":
                groups.append(_Part(1))
                continue
            times = _Times.read(piece)
            if piece == ")":
                last = groups.pop()
                last.num_open += last.has_choice
                groups[-1].add(last)
            elif times is not None:
                repeated = _Part(last.size * times.most, last.num_open * times.most + times.is_open)
                groups[-1].add(_Part(repeated.size - last.size, repeated.num_open - last.num_open))
                last = repeated
            else:
                groups[-1].has_choice |= piece == "|"
                last = _Part(_CLASS_COST if piece[0] == "[" else 1)
                groups[-1].add(last)
            if groups[-1].size > most:
                return most + 1
        size = sum(group.size for group in groups)
        return min(size * max(1, sum(group.num_open for group in groups)), most + 1)


def _length_of(alternatives: list[list[tuple[int, float]]]) -> tuple[int, float]:
    """The fewest and the most characters of a group, of whose alternatives each part's are given."""
    least = min(sum(part[0] for part in parts) for parts in alternatives)
    return least, max(sum(part[1] for part in parts) for parts in alternatives)


def _explicit_pieces(text: str) -> list[str]:
    """The pieces that a compiler needs, atoms as the code points that they stand for.

    Raises:
        ValueError: something is wrong with them.
    """
    pieces = [(str(found.lastgroup), found[0]) for found in _PIECE.finditer(text)]
    _check_order(pieces)
    kinds = [kind if kind != "anchor" else piece for kind, piece in pieces]
    if _is_within(kinds, "^", "open", "close") or _is_within(reversed(kinds), "$", "close", "open"):
        raise ValueError("'^' is supported where a pattern begins, and '$' where it ends, alone")
    pieces = [each for each in pieces if each[0] != "anchor"]
    # A piece that occurs a thousand times is spelled out once.
    explicit = {each: _explicit(*each) for each in dict.fromkeys(pieces)}
    return [explicit[each] for each in pieces]


def _check_order(pieces: list[tuple[str, str]]) -> None:
    """Whether parentheses match, and what is repeated can be."""
    has_anchor = [False]  # of each open group
    is_anchored = False  # the last group
    before = ""
    for kind, piece in pieces:
        if kind == "unsupported":
            raise ValueError(_why_unsupported(piece))
        if kind == "times":
            _check_times(piece, before)
        elif kind == "open":
            has_anchor.append(False)
        elif kind == "anchor":
            has_anchor[-1] = True
        elif kind == "close":
            is_anchored = has_anchor.pop()
            if not has_anchor:
                raise ValueError("it closes a group that is not open")
            has_anchor[-1] |= is_anchored
        before = "anchor" if kind == "close" and is_anchored else kind
    if len(has_anchor) > 1:
        raise ValueError("it leaves a group open")


def _check_times(piece: str, before: str) -> None:
    if before not in ("atom", "close"):
        raise ValueError(f"{piece!r} repeats {'an anchor' if before == 'anchor' else 'nothing'}")
    least, _, most = piece.strip("{}?").partition(",")
    if most and (len(least.lstrip("0")), least.lstrip("0")) > (len(most.lstrip("0")), most.lstrip("0")):
        raise ValueError(f"the ends of {piece!r} are out of order")


def _why_unsupported(piece: str) -> str:
    if piece[0] == "[":
        return "a class [...] has no end"
    if piece[-1] in "=!":
        return f"lookahead and lookbehind, here {piece!r}, are not supported"
    return f"groups that begin with {piece!r} and neither ':' nor '<name>' are not supported"


def _is_within(kinds: Iterable[str], anchor: str, opening: str, closing: str) -> bool:
    """Whether an anchor has something between it and that end of the expression where the kinds of pieces begin."""
    is_at_end = True
    groups = [True]  # whether each open group begins there
    for kind in kinds:
        if kind == anchor and not is_at_end:
            return True
        if kind == opening:
            groups.append(is_at_end)
        elif kind == closing:
            groups.pop()
            is_at_end = False
        elif kind == "either":
            is_at_end = groups[-1]
        elif kind != anchor:
            is_at_end = False
    return False


def _explicit(kind: str, piece: str) -> str:
    if kind == "open":
        return "("
    if kind == "times":  # lazy or not, the same texts match
        return "{0,1}" if piece in ("?", "??") else piece.removesuffix("?")
    if kind != "atom":
        return piece
    ranges = writable(atom_ranges(piece))
    if not ranges:
        raise ValueError(
            f"{piece[:20]!r} allows no character that a JSON string has as itself: quotes, backslashes and control "
            "characters are written as escapes there, and surrogates are none"
        )
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _written(ranges[0][0])
    ends = (sorted({first, last}) for first, last in ranges)
    return f"[{''.join('-'.join(map(_written, each)) for each in ends)}]"


def _written(code_point: int) -> str:
    character = chr(code_point)
    return character if character.isascii() and character.isalnum() else rf"\u{{{code_point:x}}}"


def _limits(piece: str) -> tuple[int, float] | None:
    """How often at least and at most what comes before stands there; None if the piece repeats nothing."""
    if piece in ("*", "+"):
        return int(piece == "+"), math.inf
    if piece[0] != "{" or len(piece) == 1:
        return None
    least, comma, most = piece[1:-1].partition(",")
    fewest = int(least) if len(least) <= _MOST_DIGITS else 10**_MOST_DIGITS
    if not comma:
        most = least
    return fewest, int(most) if most and len(most) <= _MOST_DIGITS else math.inf


@dataclass(slots=True)
class _Part:
    """A part of an expression: its characters, and the places where the length of what matches is open."""

    size: int = 0
    num_open: int = 0
    has_choice: bool = False

    def add(self, part: "_Part") -> None:
        self.size += part.size
        self.num_open += part.num_open


@dataclass(frozen=True, slots=True)
class _Times:
    """How often what comes before may stand there; without a bound the most is the least, at least one."""

    most: int
    is_open: bool

    @classmethod
    def read(cls, piece: str) -> "_Times | None":
        """None if the piece repeats nothing."""
        if piece in ("*", "+", "?"):
            return cls(1, is_open=True)
        if piece[0] != "{" or len(piece) == 1:
            return None
        least, comma, most = piece[1:-1].partition(",")
        digits = most or least
        times = int(digits) if len(digits) <= _MOST_DIGITS else 10**_MOST_DIGITS
        return cls(max(1, times), is_open=bool(comma))
