"""From deltas to the entries of `choices` in chat answers, whole or in pieces, with tool calls told from text."""

import uuid
from collections.abc import Iterator
from typing import Any

from minivllm_runtime.outputs import ChoiceDelta
from minivllm_server.protocol.logprobs import chat_logprobs
from minivllm_server.tool_calls.parser import CallPiece, MakeParser, Parsed, ToolCallParser


class ChatChoices:
    """Makes the entries of one answer.

    Args:
        make_parser: Makes what finds tool calls in one choice; None: there are none.
        is_parallel: Whether a choice may have more than one call; further ones are dropped.
    """

    def __init__(self, make_parser: MakeParser | None = None, *, is_parallel: bool = True) -> None:
        self._make_parser = make_parser
        self._is_parallel = is_parallel
        self._choices: dict[int, _ChoiceWithTools] = {}

    def opening(self, num_choices: int) -> Iterator[dict[str, Any]]:
        """Yields the entry that opens each choice of a stream."""
        for index in range(num_choices):
            yield _entry(index, {"role": "assistant", "content": ""})

    def of_delta(self, delta: ChoiceDelta) -> Iterator[dict[str, Any]]:
        """Yields the entries of a piece of an answer."""
        logprobs = None if delta.logprobs is None else chat_logprobs(delta.logprobs)
        if self._make_parser is None:
            yield _entry(delta.index, {"content": delta.text}, logprobs, delta.finish_reason)
            return
        choice = self._choice(delta.index)
        parsed = choice.push(delta)
        message: dict[str, Any] = {"content": parsed.content} if parsed.content else {}
        if calls := choice.number(parsed.calls):
            message["tool_calls"] = calls
        if message or logprobs is not None or delta.finish_reason is not None:
            yield _entry(delta.index, message, logprobs, choice.finish_reason(delta))

    def whole(self, delta: ChoiceDelta) -> dict[str, Any]:
        """Returns the entry of an answer that is not streamed, in the shape of `ChatChoice`."""
        (entry,) = self.of_delta(delta)
        message = entry.pop("delta")
        calls = [
            {name: call[name] for name in ("id", "type", "function")}
            for call in message.get("tool_calls", ())
        ]
        entry["message"] = {"role": "assistant", "content": message.get("content"), "refusal": None}
        if calls:
            entry["message"]["tool_calls"] = calls
        elif entry["message"]["content"] is None:
            entry["message"]["content"] = ""
        return entry

    def _choice(self, index: int) -> "_ChoiceWithTools":
        if index not in self._choices:
            assert self._make_parser is not None, "asked for only where there are tools"
            self._choices[index] = _ChoiceWithTools(self._make_parser(), self._is_parallel)
        return self._choices[index]


class _ChoiceWithTools:
    """What is known of the calls of one choice."""

    def __init__(self, parser: ToolCallParser, is_parallel: bool) -> None:
        self._parser = parser
        self._most_calls = None if is_parallel else 1
        self._num_calls = 0

    def push(self, delta: ChoiceDelta) -> Parsed:
        parsed = self._parser.push(delta.text)
        if delta.finish_reason is None:
            return parsed
        last = self._parser.finish()
        return Parsed(parsed.content + last.content, parsed.calls + last.calls)

    def number(self, pieces: tuple[CallPiece, ...]) -> list[dict[str, Any]]:
        """The pieces as the client's accumulator needs them: identity and name with the first piece of a call."""
        numbered: list[dict[str, Any]] = []
        for piece in pieces:
            if piece.name is None:
                numbered.append({"index": self._num_calls - 1, "function": {"arguments": piece.arguments}})
            elif self._num_calls != self._most_calls:
                numbered.append(_call(self._num_calls, piece.name, piece.arguments))
                self._num_calls += 1
        return numbered

    def finish_reason(self, delta: ChoiceDelta) -> str | None:
        return "tool_calls" if delta.finish_reason == "stop" and self._num_calls else delta.finish_reason


def _call(index: int, name: str, arguments: str) -> dict[str, Any]:
    return {
        "index": index,
        "id": f"call_{uuid.uuid4().hex[:24]}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _entry(
    index: int,
    delta: dict[str, Any],
    logprobs: dict[str, Any] | None = None,
    finish_reason: str | None = None,
) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
