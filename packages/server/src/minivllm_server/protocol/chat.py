"""`POST /v1/chat/completions`: request, response and the chunks of a stream.

Source: OpenAI API reference, "Chat".
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from minivllm_runtime.outputs import FinishReasonName
from minivllm_runtime.sampling_params import SamplingParams
from minivllm_server.protocol.generation import GenerationRequest, StrictModel
from minivllm_server.protocol.logprobs import ChatLogprobs
from minivllm_server.protocol.usage import Usage

Role = Literal["developer", "system", "user", "assistant", "tool", "function"]


def _join_parts(value: Any) -> Any:
    """Text given in parts becomes one text; every other kind of part is refused by its name."""
    if not isinstance(value, list):
        return value
    texts: list[str] = []
    for part in value:
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get("text") if kind == "text" else None
        if not isinstance(text, str):
            raise PydanticCustomError(
                "content_part", "a part must be {{'type': 'text', 'text': …}}, other kinds are not supported"
            )
        texts.append(text)
    return "".join(texts)


class TextPart(BaseModel):
    """A piece of a message's content."""

    type: Literal["text"]
    text: str


Content = Annotated[str, BeforeValidator(_join_parts, json_schema_input_type=str | list[TextPart])]


class ChatMessage(StrictModel):
    """One turn of a conversation."""

    role: Role
    content: Content
    name: str | None = None

    def to_template(self) -> dict[str, Any]:
        """Returns the message as chat templates expect it."""
        return self.model_dump(exclude_none=True)


class ChatRequest(GenerationRequest):
    """The body of a chat completion request."""

    messages: list[ChatMessage] = Field(min_length=1)
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)

    @field_validator("top_logprobs")
    @classmethod
    def _needs_logprobs(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and not info.data.get("logprobs"):
            raise PydanticCustomError("top_logprobs", "is only allowed when logprobs is true")
        return value

    def sampling_params(self) -> SamplingParams:
        """Returns how to generate; without a limit, `max_tokens` is None and all the room is used.

        Raises:
            InvalidParameter: A value is out of its range.
        """
        max_tokens = self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
        logprobs = (self.top_logprobs or 0) if self.logprobs else None
        return self._sampling_params(max_tokens=max_tokens, logprobs=logprobs)


class AssistantMessage(BaseModel):
    """What the model said."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None


class ChatChoice(BaseModel):
    """One generated answer."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReasonName


class ChatResponse(BaseModel):
    """The answer to a chat completion request that is not streamed."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
