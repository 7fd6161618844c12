"""Calls that the client demands: a grammar makes the model write nothing else."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from minivllm_server.tool_calls.parser import CallPiece, Parsed, call_of


class NamedCallParser:
    """All of the text is the arguments of one function.

    Args:
        name: Of the function.
    """

    def __init__(self, name: str) -> None:
        self._name: str | None = name

    def push(self, text: str) -> Parsed:
        """See `ToolCallParser.push`."""
        if not text:
            return Parsed()
        name, self._name = self._name, None
        return Parsed("", (CallPiece(name, text),))

    def finish(self) -> Parsed:
        """See `ToolCallParser.finish`."""
        return Parsed()


class CallListParser:
    """All of the text is a JSON array of calls, as `call_list_schema` has it. One that was cut short stays text."""

    def __init__(self) -> None:
        self._pending = ""

    def push(self, text: str) -> Parsed:
        """See `ToolCallParser.push`."""
        self._pending += text
        return Parsed()

    def finish(self) -> Parsed:
        """See `ToolCallParser.finish`."""
        try:
            calls = [call_of(value, "parameters") for value in json.loads(self._pending)]
        except ValueError:
            return Parsed(self._pending)
        return Parsed("", tuple(call for call in calls if call is not None))


def call_list_schema(
    functions: Sequence[tuple[str, Mapping[str, Any]]], *, is_parallel: bool
) -> dict[str, Any]:
    """Returns the JSON schema of at least one call.

    Args:
        functions: Name of each and the schema of its parameters.
        is_parallel: Whether there may be more than one call.
    """
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": name}, "parameters": parameters},
            "required": ["name", "parameters"],
            "additionalProperties": False,
        }
        for name, parameters in functions
    ]
    schema = {"type": "array", "minItems": 1, "items": {"anyOf": calls}}
    return schema if is_parallel else {**schema, "maxItems": 1}
