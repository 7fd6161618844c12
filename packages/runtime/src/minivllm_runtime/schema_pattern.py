"""What stands in a regular expression of a JSON schema (ECMA-262, 22.2.1), without matching it."""

import re

_TOKEN = re.compile(
    r"""
    \[ (?: \\.? | [^\]\\] )* \]?  # a character class; without its end it goes to the end, never to be tried again
    | \\.
    | \( \? <? [=!]              # an assertion
    | .
    """,
    re.DOTALL | re.VERBOSE,
)


class SchemaPattern:
    """A regular expression, cut into tokens.

    Args:
        text: The expression. It need not be a valid one.
    """

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = _TOKEN.findall(text)

    @property
    def outside_classes(self) -> str:
        """The expression without its character classes [...]."""
        return "".join(token for token in self._tokens if not token.startswith("["))

    @property
    def assertion(self) -> str | None:
        """How its first lookahead or lookbehind begins."""
        return next((token for token in self._tokens if token.startswith("(?")), None)
