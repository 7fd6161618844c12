"""Where a JSON object ends that comes in pieces."""

import re
from typing import Final

_OUTSIDE_STRINGS: Final = re.compile(r'["{}\[\]<]')
_IN_STRINGS: Final = re.compile(r'["\\]')


class Brackets:
    """Follows how deep JSON text is nested, by nothing but its brackets and strings.

    Args:
        depth: Brackets that are open at the beginning.

    Attributes:
        is_broken: Whether a `<` came outside strings: no JSON has that, so a tag begins, whatever is still open.
    """

    def __init__(self, depth: int = 0) -> None:
        self.is_broken = False
        self._depth = depth
        self._in_string = False
        self._is_escaped = False

    def advance(self, text: str, depth: int) -> int | None:
        """Reads on, at most up to the bracket that brings the depth down to `depth`, or up to a `<`.

        Returns:
            Where that bracket ends or the `<` begins in `text`; None if `text` has neither.
        """
        position = 0
        if self._is_escaped and text:
            self._is_escaped = False
            position = 1
        while mark := (_IN_STRINGS if self._in_string else _OUTSIDE_STRINGS).search(text, position):
            position = mark.end()
            match mark[0]:
                case '"':
                    self._in_string = not self._in_string
                case "\\":
                    self._is_escaped = position == len(text)
                    position += 1
                case "{" | "[":
                    self._depth += 1
                case "<":
                    self.is_broken = True
                    return mark.start()
                case _:
                    self._depth -= 1
                    if self._depth == depth:
                        return position
        return None
