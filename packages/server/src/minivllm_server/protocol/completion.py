"""`POST /v1/completions`: request, response and the chunks of a stream.

Source: OpenAI API reference, "Completions".
"""

from itertools import chain
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, PlainValidator, field_validator
from pydantic_core import PydanticCustomError

from minivllm_runtime.outputs import FinishReasonName
from minivllm_runtime.sampling_params import SamplingParams
from minivllm_server.protocol.generation import GenerationRequest
from minivllm_server.protocol.logprobs import CompletionLogprobs
from minivllm_server.protocol.usage import Usage

DEFAULT_MAX_TOKENS = 16
"""OpenAI's default for completions; a prompt that leaves less room gets that."""


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

    @field_validator("best_of", "suffix")
    @classmethod
    def _refuse_unsupported(cls, value: Any) -> Any:
        if value is not None:
            raise PydanticCustomError("unsupported", "is not supported")
        return value

    def sampling_params(self) -> SamplingParams:
        """Returns how to generate; without a limit, `max_tokens` is None and `DEFAULT_MAX_TOKENS` applies.

        Raises:
            InvalidParameter: A value is out of its range.
        """
        scores_prompt = self.echo and (self.logprobs is not None or self.max_tokens == 0)
        return self._sampling_params(
            max_tokens=self.max_tokens,
            logprobs=self.logprobs,
            prompt_logprobs=(self.logprobs or 0) if scores_prompt else None,
        )


class CompletionChoice(BaseModel):
    """One generated text, or a piece of it in a stream."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: FinishReasonName | None


class CompletionResponse(BaseModel):
    """The answer to a completion request that is not streamed."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage
