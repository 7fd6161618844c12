"""`POST /v1/chat/completions`: request, response and the chunks of a stream.

Source: OpenAI API reference, "Chat".
"""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from minivllm_runtime.sampling_params import SamplingParams
from minivllm_server.protocol.generation import GenerationRequest, Unsupported
from minivllm_server.protocol.logprobs import ChatLogprobs
from minivllm_server.protocol.strict import StrictModel
from minivllm_server.protocol.tools import (
    MAX_TOOLS,
    AnsweredToolCall,
    NamedToolChoice,
    Tool,
    ToolCall,
    ToolChoice,
)
from minivllm_server.protocol.usage import Usage

MAX_MESSAGES = 16_384
MAX_PARTS = 1024
"""Of one message."""
MAX_TEMPLATE_VARIABLES = 64
MAX_TOOL_CALLS = 16_384
"""Of a conversation."""

FinishReason = Literal["stop", "length", "tool_calls"]
Role = Literal["developer", "system", "user", "assistant", "tool", "function"]


def _join_parts(value: Any) -> Any:
    """Text given in parts becomes one text; every other kind of part is refused by its name."""
    if not isinstance(value, list):
        return value
    if len(value) > MAX_PARTS:
        raise PydanticCustomError("too_many_parts", "at most {limit} parts are allowed", {"limit": MAX_PARTS})
    texts: list[str] = []
    for part in value:
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get(kind) if kind in ("text", "refusal") else None
        if not isinstance(text, str):
            raise PydanticCustomError(
                "content_part", "a part must be {'type': 'text', 'text': …}, other kinds are not supported"
            )
        texts.append(text)
    return "".join(texts)


class TextPart(BaseModel):
    """A piece of a message's content."""

    type: Literal["text"]
    text: str


class RefusalPart(BaseModel):
    """A piece of what an assistant said, as other servers have it in an answer."""

    type: Literal["refusal"]
    refusal: str


Content = Annotated[
    str, BeforeValidator(_join_parts, json_schema_input_type=str | list[TextPart | RefusalPart])
]


# Reports on a million wrong calls or messages would stall the event loop.
ToolCalls = Annotated[list[ToolCall], Field(fail_fast=True)]


class ChatMessage(StrictModel):
    """One turn of a conversation. Only an assistant may have said nothing."""

    role: Role
    content: Content | None = None
    refusal: str | None = None
    name: str | None = None
    tool_calls: ToolCalls | None = None
    tool_call_id: str | None = None

    @model_validator(mode="after")
    def _has_content(self) -> Self:
        if self.content is None and self.role != "assistant":
            raise PydanticCustomError("content", "content must be text or parts of text")
        return self

    def to_template(self) -> dict[str, Any]:
        """Returns the message as `AsyncEngine.encode_chat` takes it."""
        # Many templates add the content to other text, so that it must be text.
        content = (self.refusal or "") if self.content is None else self.content
        message: dict[str, Any] = {"role": self.role, "content": content}
        if self.tool_calls:
            message["tool_calls"] = [call.model_dump() for call in self.tool_calls]
        others = {"name": self.name, "tool_call_id": self.tool_call_id}
        return message | {name: value for name, value in others.items() if value is not None}


def _bound_tool_calls(messages: Any) -> Any:
    """Before anything looks at the calls; what is no message, no call or too many messages is refused elsewhere."""
    num_calls = 0
    for message in messages[:MAX_MESSAGES] if isinstance(messages, list) else ():
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        num_calls += len(calls) if isinstance(calls, list) else 0
    if num_calls > MAX_TOOL_CALLS:
        raise PydanticCustomError(
            "too_many_tool_calls", "at most {limit} tool calls are allowed", {"limit": MAX_TOOL_CALLS}
        )
    return messages


Messages = Annotated[
    list[ChatMessage],
    Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True),
    BeforeValidator(_bound_tool_calls),
]


TemplateVariables = Annotated[dict[str, Any], Field(max_length=MAX_TEMPLATE_VARIABLES)]


class ChatRequest(GenerationRequest):
    """The body of a chat completion request."""

    messages: Messages
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    tools: list[Tool] | None = Field(None, max_length=MAX_TOOLS)
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    chat_template: Unsupported = None
    chat_template_kwargs: TemplateVariables | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None

    @field_validator("add_generation_prompt", "continue_final_message")
    @classmethod
    def _refuse_to_go_on(cls, value: bool | None, info: ValidationInfo) -> bool | None:
        if value not in (None, info.field_name == "add_generation_prompt"):
            raise PydanticCustomError("unsupported", "is not supported: an answer is always a new turn")
        return value

    @field_validator("top_logprobs")
    @classmethod
    def _needs_logprobs(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value and not info.data.get("logprobs"):
            raise PydanticCustomError("top_logprobs", "is only allowed when logprobs is true")
        return value

    @field_validator("tool_choice")
    @classmethod
    def _needs_the_tools_it_chooses(
        cls, choice: ToolChoice | None, info: ValidationInfo
    ) -> ToolChoice | None:
        names = {tool.function.name for tool in info.data.get("tools") or ()}
        match choice:
            case NamedToolChoice(function=function) if function.name not in names:
                raise PydanticCustomError("tool_choice", "names none of the tools")
            case "required" if not names:
                raise PydanticCustomError("tool_choice", "demands a call, and there are no tools")
        return choice

    @property
    def usable_tools(self) -> list[Tool] | None:
        """The tools that the model is told of; None if there are none."""
        return None if self.tool_choice == "none" else self.tools or None

    def sampling_params(self, **output_format: Any) -> SamplingParams:
        """Returns how to generate; without a limit, `max_tokens` is None and all the room is used.

        Args:
            output_format: Fields of `SamplingParams` in place of those that `response_format` stands for.

        Raises:
            InvalidParameter: A value is out of its range.
        """
        max_tokens = self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
        logprobs = (self.top_logprobs or 0) if self.logprobs else None
        return self._sampling_params(max_tokens=max_tokens, logprobs=logprobs, **output_format)


class AssistantMessage(BaseModel):
    """What the model said."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    tool_calls: list[AnsweredToolCall] = []


class ChatChoice(BaseModel):
    """One generated answer."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReason


class ChatResponse(BaseModel):
    """The answer to a chat completion request that is not streamed."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
