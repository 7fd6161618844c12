"""What a parser of tool calls takes and gives."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol


class CallPiece(NamedTuple):
    """A part of a call. The first one has the name and no arguments yet, those after it have the arguments.

    Attributes:
        name: Of the function; None if this goes on with the call before.
        arguments: A part of the JSON text.
    """

    name: str | None
    arguments: str


class Parsed(NamedTuple):
    """What became certain.

    Attributes:
        content: Text that belongs to no call.
        calls: Parts of calls, in the order in which they were written.
    """

    content: str = ""
    calls: tuple[CallPiece, ...] = ()


class ToolCallParser(Protocol):
    """Tells calls from text, for one choice. What may still become a call is held back.

    However a text is cut into pieces, what comes of it is the same when it is joined.
    """

    def push(self, text: str) -> Parsed:
        """Takes the next piece of text."""

    def finish(self) -> Parsed:
        """The text has ended: gives what was held back."""


MakeParser = Callable[[], ToolCallParser]


def join(parts: Iterable[Parsed]) -> Parsed:
    """Returns what several results are together."""
    contents: list[str] = []
    calls: list[CallPiece] = []
    for part in parts:
        contents.append(part.content)
        calls += part.calls
    return Parsed("".join(contents), tuple(calls))
