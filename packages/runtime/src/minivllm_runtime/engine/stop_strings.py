"""Finding stop strings in text that arrives in pieces."""

from collections.abc import Sequence


class _StopString:
    """Knuth-Morris-Pratt automaton of one stop string (Knuth, Morris, Pratt 1977).

    Its state is the length of the longest tail of the text read so far that begins the stop string, so every
    character of the text is read once, however long the text and the stop string are. The table of borders
    grows with the longest match, not with the stop string: one that is far longer than the text costs nothing.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.matched = 0
        self._borders = [0]

    def read(self, char: str) -> bool:
        """Take the next character; True if the stop string ends with it."""
        while self.matched and self.text[self.matched] != char:
            self.matched = self._borders[self.matched - 1]
        if self.text[self.matched] == char:
            self.matched += 1
        if self.matched > len(self._borders):
            self._borders.append(self._next_border())
        if self.matched < len(self.text):
            return False
        self.matched = self._borders[-1]
        return True

    def _next_border(self) -> int:
        """Of the shortest prefix not in the table: the length of its longest proper prefix that is also its suffix."""
        last = self.text[len(self._borders)]
        length = self._borders[-1]
        while length and self.text[length] != last:
            length = self._borders[length - 1]
        return length + 1 if self.text[length] == last else 0


class StopStringMatcher:
    """Searches one growing text for stop strings and holds back what may still become one.

    Generation ends with the first piece that completes a stop string. If that piece completes several, the
    one that starts first cuts the text; of those that start together, the shortest.

    Args:
        stops: Non-empty strings; none at all is allowed and lets everything pass.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(_StopString(stop) for stop in stops)
        self._held = ""

    def push(self, text: str, *, may_stop: bool = True) -> tuple[str, str | None]:
        """Take the next piece of the text.

        Args:
            text: The piece; may be empty.
            may_stop: False lets stop strings that this piece completes pass as ordinary text.

        Returns:
            The text that is now safe to show, and the stop string that ended it, if one did. The safe text
            never contains the matched stop string. After a match the matcher is used up.
        """
        if not self._stops:
            return text, None
        known = self._held + text
        matches = []
        for stop in self._stops:
            end = _first_end(stop, text, may_stop=may_stop)
            if end is not None:
                matches.append((len(self._held) + end - len(stop.text), len(stop.text), stop.text))
        if matches:
            start, _, matched = min(matches)
            self._held = ""
            return known[:start], matched
        num_safe = len(known) - max(stop.matched for stop in self._stops)
        self._held = known[num_safe:]
        return known[:num_safe], None

    def flush(self) -> str:
        """Return the text still held back: the end has come and it became no stop string."""
        held, self._held = self._held, ""
        return held


def _first_end(stop: _StopString, text: str, *, may_stop: bool) -> int | None:
    """Where in `text` the first occurrence of the stop string ends; None if there is none that counts."""
    for end, char in enumerate(text, start=1):
        if stop.read(char) and may_stop:
            return end
    return None
