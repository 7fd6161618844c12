"""What the parsers of tool calls share: text and calls in turn."""

from abc import ABC, abstractmethod

from minivllm_server.tool_calls.call_reader import CallReader
from minivllm_server.tool_calls.parser import Parsed, join


class CallFinder(ABC):
    """Reads what is outside calls as a subclass does, and the calls that it finds there."""

    def __init__(self) -> None:
        self._pending = ""
        self._has_calls = False
        self._reader: CallReader | None = None
        self._opening = ""

    def push(self, text: str) -> Parsed:
        """See `ToolCallParser.push`."""
        self._pending += text
        return join(iter(self._step, None))

    def finish(self) -> Parsed:
        """See `ToolCallParser.finish`. A call that has begun is one, however it ends."""
        if self._reader is None:
            return Parsed(self._take_leftover())
        return Parsed(self._opening + self._reader.held)

    @abstractmethod
    def _read_outside(self) -> Parsed | None:
        """Takes what is certain from the beginning of what is pending; None if nothing is, as yet."""

    @abstractmethod
    def _leave_call(self, *, was_call: bool) -> None:
        """What looked like a call has ended, and was one or was text."""

    @abstractmethod
    def _take_leftover(self) -> str:
        """The content in what is pending, at the end of the text."""

    def _take(self, num_chars: int) -> str:
        taken, self._pending = self._pending[:num_chars], self._pending[num_chars:]
        return taken

    def _open_call(self, num_chars: int) -> None:
        """A call may begin after so many characters, which announce it."""
        self._opening = self._take(num_chars)
        self._reader = CallReader()

    def _step(self) -> Parsed | None:
        if self._reader is None:
            return self._read_outside()
        return self._read_call(self._reader) if self._pending else None

    def _read_call(self, reader: CallReader) -> Parsed:
        calls = reader.push(self._take(len(self._pending)))
        if calls:
            self._has_calls = True
            self._opening = ""
        if reader.rest is None:
            return Parsed("", calls)
        self._pending = reader.rest
        self._reader = None
        self._leave_call(was_call=not reader.held)
        return Parsed(self._opening + reader.held, calls)
