"""From deltas to the entries of `choices` in chat answers, whole or in pieces, with tool calls told from text."""

import uuid
from collections.abc import Iterator
from typing import Any

from minivllm_runtime.outputs import ChoiceDelta
from minivllm_server.protocol.logprobs import chat_logprobs
from minivllm_server.tool_calls.parser import CallPiece, MakeParser, Parsed, ToolCallParser, join


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
        """Yields the entries of a piece of an answer: content first, then one for each piece of a call.

        Clients that accumulate calls take the name from one chunk and the arguments from those after it.
        """
        logprobs = None if delta.logprobs is None else chat_logprobs(delta.logprobs)
        if self._make_parser is None:
            yield _entry(delta.index, {"content": delta.text}, logprobs, delta.finish_reason)
            return
        choice = self._choice(delta.index)
        parsed = choice.push(delta)
        messages: list[dict[str, Any]] = [{"content": parsed.content}] if parsed.content else []
        messages += ({"tool_calls": [piece]} for piece in choice.number(parsed.calls))
        if not messages and (logprobs is not None or delta.finish_reason is not None):
            messages = [{}]
        for num_left, message in zip(reversed(range(len(messages))), messages, strict=True):
            yield _entry(delta.index, message, logprobs, None if num_left else choice.finish_reason(delta))
            logprobs = None

    def whole(self, delta: ChoiceDelta) -> dict[str, Any]:
        """Returns the entry of an answer that is not streamed, in the shape of `ChatChoice`."""
        entries = list(self.of_delta(delta))
        content = "".join(entry["delta"].get("content", "") for entry in entries)
        calls = _join_pieces(piece for entry in entries for piece in entry["delta"].get("tool_calls", ()))
        message = {"role": "assistant", "content": content or (None if calls else ""), "refusal": None}
        return {
            "index": delta.index,
            "message": message | ({"tool_calls": calls} if calls else {}),
            "logprobs": entries[0]["logprobs"],
            "finish_reason": entries[-1]["finish_reason"],
        }

    def _choice(self, index: int) -> "_ChoiceWithTools":
        if index not in self._choices:
            assert self._make_parser is not None, "asked for only where there are tools"
            self._choices[index] = _ChoiceWithTools(self._make_parser(), self._is_parallel)
        return self._choices[index]


class _ChoiceWithTools:
    """What is known of the calls of one choice."""

    def __init__(self, parser: ToolCallParser, is_parallel: bool) -> None:
        self._parser = parser
        self._is_parallel = is_parallel
        self._num_calls = 0

    def push(self, delta: ChoiceDelta) -> Parsed:
        parsed = self._parser.push(delta.text)
        return parsed if delta.finish_reason is None else join((parsed, self._parser.finish()))

    def number(self, pieces: tuple[CallPiece, ...]) -> Iterator[dict[str, Any]]:
        """The pieces as the client's accumulator needs them; only the first one of a call has an identity."""
        for piece in pieces:
            if piece.name is not None:
                self._num_calls += 1
            if self._num_calls > 1 and not self._is_parallel:
                continue
            index = self._num_calls - 1
            if piece.name is None:
                yield {"index": index, "function": {"arguments": piece.arguments}}
            else:
                yield _first_piece(index, piece)

    def finish_reason(self, delta: ChoiceDelta) -> str | None:
        return "tool_calls" if delta.finish_reason == "stop" and self._num_calls else delta.finish_reason


def _first_piece(index: int, piece: CallPiece) -> dict[str, Any]:
    return {
        "index": index,
        "id": f"call_{uuid.uuid4().hex[:24]}",
        "type": "function",
        "function": {"name": piece.name, "arguments": piece.arguments},
    }


def _join_pieces(pieces: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls as they are in an answer that is not streamed."""
    calls: list[dict[str, Any]] = []
    for piece in pieces:
        if "id" in piece:
            calls.append({name: piece[name] for name in ("id", "type", "function")})
        else:
            calls[-1]["function"]["arguments"] += piece["function"]["arguments"]
    return calls


def _entry(
    index: int,
    delta: dict[str, Any],
    logprobs: dict[str, Any] | None = None,
    finish_reason: str | None = None,
) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
