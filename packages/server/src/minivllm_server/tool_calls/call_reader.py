"""One call that comes in pieces: a JSON object with the name of a function and its arguments."""

import json
import re
from typing import Final

from minivllm_server.tool_calls.brackets import Brackets
from minivllm_server.tool_calls.parser import CallPiece

_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_MEMBER: Final = rf"\s*{_STRING}\s*:\s*{_STRING}\s*"
_HEAD: Final = re.compile(
    rf'(\{{{_MEMBER}(?:,{_MEMBER})*),\s*"(?:arguments|parameters)"\s*:\s*(?=\{{)', re.DOTALL
)
"""All that comes before the arguments, if that is strings only."""
_MAX_HEAD_CHARS: Final = 1024
"""Bounds what is matched again with every piece."""


class CallReader:
    """Reads one call, from its opening brace on.

    If the name comes before the arguments, as models are taught it, the call begins with the arguments' opening
    brace. From then on it stays a call, and its arguments are what is written up to the bracket that closes them,
    even if they break off or are no JSON. In any other order the call comes when it is whole, its arguments
    written anew.

    Attributes:
        held: What was read while it was not certain that this is a call. What is left of it in the end is text.
        rest: What follows the object; None until that is known.
    """

    def __init__(self) -> None:
        self.held = ""
        self.rest: str | None = None
        self._brackets = Brackets()
        self._read = self._read_head

    def push(self, text: str) -> tuple[CallPiece, ...]:
        """Takes the next piece of text, up to the one that gives a `rest`."""
        return self._read(text)

    def _read_head(self, text: str) -> tuple[CallPiece, ...]:
        num_held = len(self.held)
        self.held += text
        head = _HEAD.match(self.held[:_MAX_HEAD_CHARS]) if num_held < _MAX_HEAD_CHARS else None
        name = None if head is None else _name_in(head[1] + "}")
        if head is not None and name is not None:
            arguments, self.held = self.held[head.end() :], ""
            self._brackets = Brackets(depth=1)
            self._read = self._read_arguments
            return (CallPiece(name, ""), *self._read_arguments(arguments))
        end = self._brackets.advance(text, 0)
        if end is None:
            return ()
        self.held, self.rest = self.held[: num_held + end], text[end:]
        pieces = _parse(self.held)
        if pieces:
            self.held = ""
        return pieces

    def _read_arguments(self, text: str) -> tuple[CallPiece, ...]:
        end = self._brackets.advance(text, 1)
        if end is not None and self._brackets.is_broken:
            self.rest = text[end:]
        elif end is not None:
            self._read = self._read_end
            self._read_end(text[end:])
        return (CallPiece(None, text[:end]),) if text[:end] else ()

    def _read_end(self, text: str) -> tuple[CallPiece, ...]:
        """Drops the end of the object. A model that forgets it goes on with something else."""
        text = text.lstrip()
        if text.startswith((",", "}")):
            self._read = self._read_others
            return self._read_others(text)
        if text:
            self.rest = text
        return ()

    def _read_others(self, text: str) -> tuple[CallPiece, ...]:
        """Drops further members, and the closing brace."""
        end = self._brackets.advance(text, 0)
        if end is not None:
            self.rest = text[end:]
        return ()


def _name_in(text: str) -> str | None:
    """The name in an object of strings."""
    try:
        name = json.loads(text).get("name")
    except ValueError:
        return None
    return name if isinstance(name, str) else None


def _parse(text: str) -> tuple[CallPiece, ...]:
    """The call that is all of `text`; nothing if that is none."""
    try:
        call = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    arguments = call.get("arguments", call.get("parameters"))
    if not isinstance(call.get("name"), str) or not isinstance(arguments, dict):
        return ()
    try:
        return CallPiece(call["name"], ""), CallPiece(None, json.dumps(arguments, allow_nan=False))
    except ValueError:  # Python reads NaN, and 1e999 as infinity, which are no JSON
        return ()
