"""Calls as Llama 3 models write them: `{"name": …, "parameters": {…}}` instead of an answer, or several after `;`."""

from minivllm_server.tool_calls.call_sequence import CallSequenceParser

TAG = "<|python_tag|>"
"""May come first; as a special token it is usually not shown."""


class Llama3JsonParser(CallSequenceParser):
    """An answer that begins with a brace may be calls; others are text."""

    def __init__(self) -> None:
        super().__init__(separators=" \t\r\n;", tag=TAG)
