"""Calls as Hermes and Qwen models write them: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, any number."""

from minivllm_server.tool_calls.call_finder import CallFinder
from minivllm_server.tool_calls.parser import Parsed

BEGIN = "<tool_call>"
END = "</tool_call>"


class HermesParser(CallFinder):
    """Text outside the tags is content, without the white space before calls and the end; what is no call is text.

    A call needs no end tag.
    """

    def __init__(self) -> None:
        super().__init__()
        self._may_end = False

    def _read_outside(self) -> Parsed | None:
        if self._may_end:
            return self._read_end_tag()
        before, tag, after = self._pending.partition(BEGIN)
        after = after.lstrip()
        if tag and after and not after.startswith("{"):
            return Parsed(self._take(len(before) + len(tag)))
        num_certain = len(before) if tag else len(before) - _num_held(before)
        if shown := before[:num_certain].rstrip():
            return Parsed(self._take(len(shown)))
        if not after:
            return None
        self._open_call(len(self._pending) - len(after))
        return Parsed()

    def _read_end_tag(self) -> Parsed | None:
        rest = self._pending.lstrip()
        if rest != END and END.startswith(rest):
            return None
        if rest.startswith(END):
            self._take(len(self._pending) - len(rest) + len(END))
        self._may_end = False
        return Parsed()

    def _leave_call(self, *, was_call: bool) -> None:
        self._may_end = was_call

    def _take_leftover(self) -> str:
        if self._may_end:
            return ""
        return self._pending.rstrip() if self._has_calls else self._pending


def _num_held(text: str) -> int:
    """Characters at the end of `text` that may be the first ones of a begin tag."""
    tail = text[max(text.rfind("<"), 0) :]
    return len(tail) if BEGIN.startswith(tail) else 0
