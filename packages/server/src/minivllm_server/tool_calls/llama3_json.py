"""Calls as Llama 3 models write them: `{"name": …, "parameters": {…}}` instead of an answer, or several after `;`."""

import json

from minivllm_server.tool_calls.parser import CallPiece, Parsed, call_of

TAG = "<|python_tag|>"
"""May come first; as a special token it is usually not shown."""

_SEPARATORS = " \t\r\n;"


class Llama3JsonParser:
    """An answer that begins with a brace is held back until its end, and is calls if all of it is; others are text."""

    def __init__(self) -> None:
        self._pending = ""
        self._is_text = False

    def push(self, text: str) -> Parsed:
        """See `ToolCallParser.push`."""
        if self._is_text:
            return Parsed(text)
        self._pending += text
        start = self._pending.lstrip()
        if not start or start.startswith(("{", TAG)) or TAG.startswith(start):
            return Parsed()
        self._is_text = True
        return Parsed(self._take_pending())

    def finish(self) -> Parsed:
        """See `ToolCallParser.finish`."""
        calls = _parse_all(self._pending.strip().removeprefix(TAG))
        pending = self._take_pending()
        return Parsed("", calls) if calls else Parsed(pending)

    def _take_pending(self) -> str:
        pending, self._pending = self._pending, ""
        return pending


def _parse_all(text: str) -> tuple[CallPiece, ...]:
    """All calls in `text`; none if it is anything else."""
    decoder = json.JSONDecoder()
    calls: list[CallPiece] = []
    rest = text.strip(_SEPARATORS)
    while rest:
        try:
            value, end = decoder.raw_decode(rest)
        except (ValueError, RecursionError):
            return ()
        call = call_of(value, "parameters", "arguments")
        if call is None:
            return ()
        calls.append(call)
        rest = rest[end:].lstrip(_SEPARATORS)
    return tuple(calls)
