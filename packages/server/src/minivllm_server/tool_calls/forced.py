"""Calls that the client demands: a grammar makes the model write nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any

from minivllm_runtime.json_schema import move_references, parse_schema
from minivllm_server.tool_calls.call_sequence import CallSequenceParser
from minivllm_server.tool_calls.parser import CallPiece, Parsed


class NamedCallParser:
    """All of the text is the arguments of one function.

    Args:
        name: Of the function.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._has_begun = False

    def push(self, text: str) -> Parsed:
        """See `ToolCallParser.push`."""
        if not text:
            return Parsed()
        begin = () if self._has_begun else (CallPiece(self._name, ""),)
        self._has_begun = True
        return Parsed("", (*begin, CallPiece(None, text)))

    def finish(self) -> Parsed:
        """See `ToolCallParser.finish`."""
        return Parsed()


class CallListParser(CallSequenceParser):
    """All of the text is a JSON array of calls, as `call_list_schema` has it."""

    def __init__(self) -> None:
        super().__init__(separators=" \t\r\n[,]")

    def finish(self) -> Parsed:
        """See `ToolCallParser.finish`. What is left of a call that was cut short is no words of the model's."""
        return Parsed()


def call_list_schema(
    functions: Sequence[tuple[str, Mapping[str, Any]]], *, is_parallel: bool
) -> dict[str, Any]:
    """Returns the JSON schema of at least one call.

    Args:
        functions: Name of each and the schema of its parameters.
        is_parallel: Whether there may be more than one call.

    Raises:
        InvalidParameter: it is too large or too deep.
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
    most = {} if is_parallel else {"maxItems": 1}
    schema = parse_schema({"type": "array", "minItems": 1, **most, "items": {"anyOf": calls}})
    for index, call in enumerate(schema["items"]["anyOf"]):
        place = f"#/items/anyOf/{index}/properties/parameters"
        move_references(call["properties"]["parameters"], place)
    return schema
