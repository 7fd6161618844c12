"""`POST /v1/completions`: request, response and the chunks of a stream.

Source: OpenAI API reference, "Completions"; the extra fields carry vLLM's names.
"""

from itertools import chain
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, StrictBool, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from minivllm_runtime.outputs import FinishReasonName
from minivllm_runtime.sampling_params import SamplingParams
from minivllm_server.protocol.usage import Usage

DEFAULT_MAX_TOKENS = 16
"""OpenAI's default for completions; a prompt that leaves less room gets that."""
MAX_ENTRIES = 1024
"""Of a list or an object: a bound on what one request can make every step look at."""

_SAMPLING_FIELDS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "n",
    "stop",
    "stop_token_ids",
    "min_tokens",
    "ignore_eos",
    "skip_special_tokens",
    "include_stop_str_in_output",
    "priority",
    "cache_salt",
)
_UNSUPPORTED_UNLESS: dict[str, Any] = {
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "repetition_penalty": 1,
    "logprobs": None,
    "echo": False,
    "logit_bias": {},
    "best_of": None,
    "suffix": None,
}
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


class StreamOptions(BaseModel):
    """What else a stream carries."""

    model_config: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="ignore", frozen=True)

    include_usage: StrictBool | None = None


class CompletionRequest(BaseModel):
    """The body of a completion request.

    Types are strict (no booleans as numbers, no numbers as strings, no NaN), unknown fields are ignored, and
    null means the default. `SamplingParams` checks the ranges of its fields.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(
        strict=True, extra="ignore", frozen=True, allow_inf_nan=False
    )

    model: str | None = None
    prompt: Prompts
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None
    priority: int | None = None
    cache_salt: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    repetition_penalty: float | None = Field(None, gt=0)
    logprobs: int | None = Field(None, ge=0, le=5)
    echo: bool | None = None
    logit_bias: dict[str, float] | None = None
    best_of: int | None = None
    suffix: str | None = None

    @field_validator("stop", "stop_token_ids", "logit_bias", mode="before")
    @classmethod
    def _bound_entries(cls, value: Any) -> Any:
        """Before anything looks at the entries: a report on each of millions would stall the event loop."""
        if isinstance(value, list | dict) and len(value) > MAX_ENTRIES:
            raise PydanticCustomError(
                "too_many_entries", "at most {limit} entries are allowed", {"limit": MAX_ENTRIES}
            )
        return value

    @field_validator("stream_options")
    @classmethod
    def _needs_stream(cls, options: StreamOptions | None, info: ValidationInfo) -> StreamOptions | None:
        if options is not None and not info.data.get("stream"):
            raise PydanticCustomError("stream_options", "is only allowed when stream is true")
        return options

    @field_validator(*_UNSUPPORTED_UNLESS)
    @classmethod
    def _refuse_unsupported(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and value != _UNSUPPORTED_UNLESS[info.field_name or ""]:
            raise PydanticCustomError("unsupported", "is not supported")
        return value

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a chunk of usage."""
        return self.stream_options is not None and self.stream_options.include_usage is True

    def sampling_params(self) -> SamplingParams:
        """Returns how to generate; without a limit, `max_tokens` is None and `DEFAULT_MAX_TOKENS` applies.

        Raises:
            InvalidParameter: A value is out of its range.
        """
        given = {name: value for name in _SAMPLING_FIELDS if (value := getattr(self, name)) is not None}
        return SamplingParams(max_tokens=self.max_tokens, **given)


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


class CompletionChunk(BaseModel):
    """One event of a streamed completion. `usage` is left out unless the client asked for it."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None
