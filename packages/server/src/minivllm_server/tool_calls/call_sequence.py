"""Calls instead of an answer, with nothing but separators around them."""

from minivllm_server.tool_calls.call_finder import CallFinder
from minivllm_server.tool_calls.parser import Parsed


class CallSequenceParser(CallFinder):
    """Text that begins with a call is calls. Whatever comes that is none is text, and so is all that follows it.

    Args:
        separators: Characters that may come before, between and after calls.
        tag: May come once, before all else.
    """

    def __init__(self, separators: str, tag: str = "") -> None:
        super().__init__()
        self._separators = separators
        self._tag = tag
        self._is_text = False

    def _read_outside(self) -> Parsed | None:
        if self._is_text:
            return Parsed(self._take(len(self._pending))) if self._pending else None
        start = self._pending.lstrip(self._separators)
        if not self._has_calls:
            if self._tag.startswith(start):
                return None
            start = start.removeprefix(self._tag).lstrip(self._separators)
        if not start:
            return None
        if start.startswith("{"):
            self._open_call(len(self._pending) - len(start))
        else:
            self._is_text = True
        return Parsed()

    def _leave_call(self, *, was_call: bool) -> None:
        self._is_text = not was_call

    def _take_leftover(self) -> str:
        return "" if self._has_calls else self._pending
