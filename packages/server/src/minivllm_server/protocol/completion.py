"""`POST /v1/completions`: request, response and the chunks of a stream.

Source: OpenAI API reference, "Completions".
"""

from itertools import chain
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, PlainValidator, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from minivllm_runtime.outputs import FinishReasonName
from minivllm_runtime.sampling_params import SamplingParams
from minivllm_server.protocol.generation import GenerationRequest
from minivllm_server.protocol.usage import Usage

DEFAULT_MAX_TOKENS = 16
"""OpenAI's default for completions; a prompt that leaves less room gets that."""

_UNSUPPORTED_UNLESS: dict[str, Any] = {"logprobs": None, "echo": False, "best_of": None, "suffix": None}
"""Fields that only their default value (or null) is served for."""


def _split_prompts(value: Any) -> list[str | list[int]]:
    """One field holds four things; told apart by the exact types, so that `true` is no token id."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        kinds = set(map(type, value))
        if kinds <= {int}:
            return [value]
        if kinds == {str} or (kinds == {list} and set(map(type, chain.from_iterable(value))) <= {int}):
            return value
    raise PydanticCustomError("prompt_type", "must be text, token ids, or a list of either")


Prompts = Annotated[
    list[str | list[int]],
    PlainValidator(_split_prompts, json_schema_input_type=str | list[str] | list[int] | list[list[int]]),
]


class CompletionRequest(GenerationRequest):
    """The body of a completion request."""

    prompt: Prompts
    logprobs: int | None = Field(None, ge=0, le=5)
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None

    @field_validator(*_UNSUPPORTED_UNLESS)
    @classmethod
    def _refuse_unsupported_here(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and value != _UNSUPPORTED_UNLESS[info.field_name or ""]:
            raise PydanticCustomError("unsupported", "is not supported")
        return value

    def sampling_params(self) -> SamplingParams:
        """Returns how to generate; without a limit, `max_tokens` is None and `DEFAULT_MAX_TOKENS` applies.

        Raises:
            InvalidParameter: A value is out of its range.
        """
        return self._sampling_params(max_tokens=self.max_tokens)


class CompletionChoice(BaseModel):
    """One generated text, or a piece of it in a stream."""

    index: int
    text: str
    logprobs: None = None
    finish_reason: FinishReasonName | None


class CompletionResponse(BaseModel):
    """The answer to a completion request that is not streamed."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage
