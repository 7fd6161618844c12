"""Which way of writing calls a model has been taught."""

from collections.abc import Mapping
from typing import Final, Literal

from minivllm_server.tool_calls.hermes import BEGIN, HermesParser
from minivllm_server.tool_calls.llama3_json import Llama3JsonParser
from minivllm_server.tool_calls.parser import MakeParser

ToolCallFormat = Literal["auto", "hermes", "llama3_json"]

_PARSERS: Final[Mapping[str, MakeParser]] = {"hermes": HermesParser, "llama3_json": Llama3JsonParser}


def parser_of(tool_call_format: ToolCallFormat, chat_template: str | None) -> MakeParser | None:
    """Returns what parses the calls of a model; None if nobody knows how it writes them.

    Args:
        tool_call_format: As set; with "auto" the template tells, since it teaches the model by example.
        chat_template: Source of the model's chat template.
    """
    if tool_call_format != "auto":
        return _PARSERS[tool_call_format]
    if chat_template is None or "tools" not in chat_template:
        return None
    if BEGIN in chat_template:
        return HermesParser
    return Llama3JsonParser if '"parameters"' in chat_template else None
