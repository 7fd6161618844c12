"""Tools in requests and answers of chats.

Source: OpenAI API reference, "Chat", `tools`, `tool_choice` and `tool_calls`.
"""

from typing import Any, Literal

from pydantic import BaseModel, Field

from minivllm_server.protocol.json_schema import JsonSchema
from minivllm_server.protocol.strict import StrictModel

MAX_TOOLS = 128
"""OpenAI's limit."""


class FunctionDefinition(StrictModel):
    """A function that the model may call.

    Attributes:
        parameters: JSON schema of its arguments; null takes none.
        strict: True refuses keywords of the schema that cannot be enforced, if the function must be called; else they
            are ignored, as OpenAI has it.
    """

    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    description: str | None = None
    parameters: JsonSchema | None = None
    strict: bool | None = None


class Tool(StrictModel):
    """Something the model may use."""

    type: Literal["function"] = "function"
    function: FunctionDefinition

    def to_template(self) -> dict[str, Any]:
        """Returns the tool as chat templates expect it; its schema, which may be large, is not copied."""
        shown = ("name", "description", "parameters")
        function = {name: value for name, value in self.function if name in shown and value is not None}
        return {"type": self.type, "function": function}


class FunctionName(StrictModel):
    """The name of a function."""

    name: str


class NamedToolChoice(StrictModel):
    """The function that the model must call."""

    type: Literal["function"] = "function"
    function: FunctionName


ToolChoice = Literal["none", "auto", "required"] | NamedToolChoice


class FunctionCall(StrictModel):
    """A call that the model has written.

    Attributes:
        arguments: JSON text; a model may write what is none.
    """

    name: str
    arguments: str


class ToolCall(StrictModel):
    """A call in the history of a conversation."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class AnsweredFunction(BaseModel):
    """Name and arguments of a call in an answer."""

    name: str
    arguments: str


class AnsweredToolCall(BaseModel):
    """A call in an answer."""

    id: str
    type: Literal["function"] = "function"
    function: AnsweredFunction
