"""What a parser of tool calls takes and gives."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol


class CallPiece(NamedTuple):
    """A part of a call, or a whole one.

    Attributes:
        name: Of the function; None if this goes on with the arguments of the call before.
        arguments: JSON text, or a part of it.
    """

    name: str | None
    arguments: str


class Parsed(NamedTuple):
    """What became certain.

    Attributes:
        content: Text that belongs to no call.
        calls: In the order in which they were written.
    """

    content: str = ""
    calls: tuple[CallPiece, ...] = ()


class ToolCallParser(Protocol):
    """Tells calls from text, for one choice. What may still become a call is held back."""

    def push(self, text: str) -> Parsed:
        """Takes the next piece of text."""

    def finish(self) -> Parsed:
        """The text has ended: gives what was held back."""


MakeParser = Callable[[], ToolCallParser]


def call_of(value: Any, *argument_names: str) -> CallPiece | None:
    """Returns the call that a JSON value stands for, None if it is none.

    Args:
        value: A parsed JSON value.
        argument_names: What the member with the arguments may be called.
    """
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    for name in argument_names:
        if isinstance(value.get(name), dict):
            return CallPiece(value["name"], json.dumps(value[name], ensure_ascii=False))
    return None
