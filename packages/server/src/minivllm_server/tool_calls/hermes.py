"""Calls as Hermes and Qwen models write them: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, any number."""

import json

from minivllm_server.tool_calls.parser import CallPiece, Parsed, call_of

BEGIN = "<tool_call>"
END = "</tool_call>"


class HermesParser:
    """Text outside the tags is content, without the white space around calls; what is no call stays text."""

    def __init__(self) -> None:
        self._pending = ""
        self._num_calls = 0

    def push(self, text: str) -> Parsed:
        """See `ToolCallParser.push`."""
        self._pending += text
        contents: list[str] = []
        calls: list[CallPiece] = []
        while (begin := self._pending.find(BEGIN)) >= 0:
            end = self._pending.find(END, begin)
            if end < 0:
                break
            call = _parse(self._pending[begin + len(BEGIN) : end])
            if call is None:
                contents.append(self._pending[: end + len(END)])
            else:
                contents.append(self._pending[:begin].rstrip())
                calls.append(call)
                self._num_calls += 1
            self._pending = self._pending[end + len(END) :]
        contents.append(self._take_safe())
        return Parsed("".join(contents), tuple(calls))

    def finish(self) -> Parsed:
        """See `ToolCallParser.finish`. A last call needs no end tag."""
        pending, self._pending = self._pending, ""
        before, tag, body = pending.partition(BEGIN)
        call = _parse(body) if tag else None
        if call is not None:
            self._num_calls += 1
            return Parsed(before.rstrip(), (call,))
        return Parsed(pending.rstrip() if self._num_calls else pending)

    def _take_safe(self) -> str:
        """What can be shown already: no begin of a call, and no white space that may come before one."""
        begin = self._pending.find(BEGIN)
        end = begin if begin >= 0 else len(self._pending) - _num_held(self._pending)
        safe = self._pending[:end].rstrip()
        self._pending = self._pending[len(safe) :]
        return safe


def _num_held(text: str) -> int:
    """Characters at the end of `text` that may be the first ones of a begin tag."""
    lengths = range(min(len(text), len(BEGIN) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(BEGIN[:length])), 0)


def _parse(body: str) -> CallPiece | None:
    try:
        return call_of(json.loads(body), "arguments", "parameters")
    except (ValueError, RecursionError):
        return None
