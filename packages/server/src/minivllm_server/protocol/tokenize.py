"""`POST /tokenize` and `POST /detokenize`, in vLLM's shapes."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, PlainValidator, model_validator
from pydantic_core import PydanticCustomError

from minivllm_server.protocol.chat import Messages, TemplateVariables
from minivllm_server.protocol.strict import StrictModel
from minivllm_server.protocol.tools import MAX_TOOLS, Tool


class TokenizeRequest(StrictModel):
    """A text, or a conversation that the model's chat template makes a text of.

    Attributes:
        add_special_tokens: Whether a text gets what the tokenizer puts around it; the default is true. A
            conversation's special tokens are those of the template.
        tools, chat_template_kwargs: Beside messages, as in a chat.
    """

    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    tools: list[Tool] | None = Field(None, max_length=MAX_TOOLS)
    chat_template_kwargs: TemplateVariables | None = None
    add_special_tokens: bool | None = None

    @model_validator(mode="after")
    def _has_one_text(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise PydanticCustomError("one_text", "either prompt or messages must be given")
        return self


class TokenizeResponse(BaseModel):
    """Token ids of a text.

    Attributes:
        count: How many ids there are.
        max_model_len: Most tokens of one request, prompt included.
    """

    tokens: list[int]
    count: int
    max_model_len: int


def _check_ids(value: Any) -> list[int]:
    if not isinstance(value, list) or not set(map(type, value)) <= {int}:
        raise PydanticCustomError("token_ids", "must be a list of token ids")
    return value


class DetokenizeRequest(StrictModel):
    """Token ids."""

    model: str | None = None
    tokens: Annotated[list[int], PlainValidator(_check_ids, json_schema_input_type=list[int])]


class DetokenizeResponse(BaseModel):
    """The text of token ids, special tokens included."""

    prompt: str
