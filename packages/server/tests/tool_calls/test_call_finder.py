import pytest

from minivllm_server.tool_calls.call_finder import CallFinder
from minivllm_server.tool_calls.parser import Parsed

from .reading import read

CALL = '{"name": "f", "arguments": {}}'


class CallAfterMark(CallFinder):
    """A call comes after a `!`; what was a call, and what was none, is noted in the content."""

    def _read_outside(self):
        if not self._pending:
            return None
        if self._pending[0] != "!":
            return Parsed(self._take(1))
        if self._pending == "!":
            return None
        self._open_call(1)
        return Parsed()

    def _leave_call(self, *, was_call):
        self._pending = ("+" if was_call else "-") + self._pending

    def _take_leftover(self):
        return f"({self._pending})"


@pytest.mark.parametrize(
    ("text", "content", "num_calls"),
    [
        (f"a!{CALL}b", "a+b()", 1),
        (f"!{CALL}!{CALL}", "++()", 2),
        ("a!{}b", "a!{}-b()", 0),
        ("a!", "a(!)", 0),
        (f"a!{CALL[:-1]}", "a", 1),
        (f"a!{CALL[:9]}", f"a!{CALL[:9]}", 0),
        (f"a!{{}}!{CALL}", "a!{}-+()", 1),
    ],
)
def test_text_and_calls_take_turns(text, content, num_calls):
    assert read(CallAfterMark, text) == (content, [("f", "{}")] * num_calls)
    assert read(CallAfterMark, *text) == (content, [("f", "{}")] * num_calls)
