"""What stands in a regular expression of a JSON schema (ECMA-262, 22.2.1), without matching it."""

import re
from dataclasses import dataclass

_PIECE = re.compile(
    r"""
    \[ (?: \\.? | [^\]\\] )* \]?  # a character class; without its end it goes to the end, never to be tried again
    | \\.
    | \( (?: \? (?: <?[=!] | [:<] )? )?
    | \{ \d+ (?: , \d* )? \}
    | .
    """,
    re.DOTALL | re.VERBOSE,
)
_ESCAPE_OR_PAST_ASCII = re.compile(r"\\?[^\x00-\x7f\ud800-\udfff]|\\[\x00-\x7f]")
_CLASS_ESCAPES = frozenset(["\\d", "\\D", "\\s", "\\S", "\\w", "\\W"])
_CLASS_COST = 16
_MOST_DIGITS = 9


class SchemaPattern:
    """A regular expression, cut into pieces.

    Args:
        text: The expression. It need not be a valid one.
    """

    def __init__(self, text: str) -> None:
        self._pieces: list[str] = _PIECE.findall(text)

    @property
    def in_ascii(self) -> str:
        """The same expression with an escape for every character past ASCII; lone surrogates are left."""
        return _ESCAPE_OR_PAST_ASCII.sub(_in_ascii, "".join(self._pieces))

    @property
    def outside_classes(self) -> str:
        """The expression without its character classes [...]."""
        return "".join(piece for piece in self._pieces if not piece.startswith("["))

    @property
    def classes(self) -> list[str]:
        """Its character classes [...], with their brackets."""
        return [piece for piece in self._pieces if piece.startswith("[")]

    @property
    def assertion(self) -> str | None:
        """How its first lookahead or lookbehind begins."""
        return next((t for t in self._pieces if t.startswith("(?") and t[-1] in "=!"), None)

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
            if piece == ")" and len(groups) > 1:
                last = groups.pop()
                last.num_open += last.has_choice
                groups[-1].add(last)
            elif times is not None:
                repeated = _Part(last.size * times.most, last.num_open * times.most + times.is_open)
                groups[-1].add(_Part(repeated.size - last.size, repeated.num_open - last.num_open))
                last = repeated
            else:
                groups[-1].has_choice |= piece == "|"
                last = _Part(_CLASS_COST if piece[0] in "[." or piece in _CLASS_ESCAPES else 1)
                groups[-1].add(last)
            if groups[-1].size > most:
                return most + 1
        size = sum(group.size for group in groups)
        return min(size * max(1, sum(group.num_open for group in groups)), most + 1)


def _in_ascii(found: re.Match[str]) -> str:
    return found[0] if found[0].isascii() else rf"\u{{{ord(found[0][-1]):x}}}"


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
