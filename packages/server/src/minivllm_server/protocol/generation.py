"""What requests for generated text have in common, whichever endpoint they are sent to.

Source: OpenAI API reference; the extra fields carry vLLM's names.
"""

from typing import Annotated, Any

from pydantic import AfterValidator, Field, StrictBool, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from minivllm_runtime.sampling_params import MAX_CHOICES, MAX_SALT_CHARS, MAX_STOP_STRINGS, SamplingParams
from minivllm_server.protocol.response_format import ResponseFormat
from minivllm_server.protocol.strict import StrictModel

MAX_ENTRIES = 1024
"""Of a list or an object: a bound on what one request can make every step look at."""

MAX_ID_DIGITS = 18
"""Of a token id in `logit_bias`: more than any vocabulary needs."""

_SAMPLING_FIELDS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
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


def _documented(**constraints: Any) -> Any:
    """An optional field whose range stands in the API document; `SamplingParams` is what enforces it."""
    return Field(None, json_schema_extra=constraints)


def _refuse_unsupported(value: Any) -> Any:
    if value:
        raise PydanticCustomError("unsupported", "is not supported")
    return value


Unsupported = Annotated[Any, AfterValidator(_refuse_unsupported)]
"""Asks for what is not done here: to ignore it would be to answer otherwise than asked. It may ask for nothing."""


class StreamOptions(StrictModel):
    """What else a stream carries."""

    include_usage: StrictBool | None = None


class GenerationRequest(StrictModel):
    """How to generate and how to answer. Null means the default; `SamplingParams` checks the ranges of its fields."""

    model: str | None = None
    temperature: float | None = _documented(minimum=0, maximum=2)
    top_p: float | None = _documented(minimum=0, maximum=1)
    top_k: int | None = _documented(minimum=-1)
    min_p: float | None = _documented(minimum=0, maximum=1)
    presence_penalty: float | None = _documented(minimum=-2, maximum=2)
    frequency_penalty: float | None = _documented(minimum=-2, maximum=2)
    repetition_penalty: float | None = _documented(exclusiveMinimum=0)
    logit_bias: dict[str, float] | None = _documented(
        propertyNames={"pattern": "^[0-9]{1,18}$"}, additionalProperties={"minimum": -100, "maximum": 100}
    )
    seed: int | None = _documented(minimum=-(2**63), maximum=2**64 - 1)
    n: int | None = _documented(minimum=1, maximum=MAX_CHOICES)
    stop: str | list[str] | None = _documented(minLength=1, maxItems=MAX_STOP_STRINGS)
    stop_token_ids: list[int] | None = _documented(maxItems=MAX_ENTRIES)
    max_tokens: int | None = _documented(minimum=0)
    min_tokens: int | None = _documented(minimum=0)
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None
    priority: int | None = None
    cache_salt: str | None = _documented(maxLength=MAX_SALT_CHARS)
    response_format: ResponseFormat | None = None
    structured_outputs: Unsupported = None
    guided_json: Unsupported = None
    guided_regex: Unsupported = None
    guided_choice: Unsupported = None
    guided_grammar: Unsupported = None
    bad_words: Unsupported = None
    allowed_token_ids: Unsupported = None
    use_beam_search: Unsupported = None
    truncate_prompt_tokens: Unsupported = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

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

    @field_validator("logit_bias")
    @classmethod
    def _refuse_what_is_no_id(cls, bias: dict[str, float] | None) -> dict[str, float] | None:
        for key in bias or ():
            if not (key.isascii() and key.isdecimal() and len(key) <= MAX_ID_DIGITS):
                raise PydanticCustomError("token_id", "the keys must be token ids")
        return bias

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a chunk of usage."""
        return self.stream_options is not None and self.stream_options.include_usage is True

    def _sampling_params(self, **others: Any) -> SamplingParams:
        """Returns the fields that were given, and `others`, as parameters; a JSON format among them counts."""
        given = {name: value for name in _SAMPLING_FIELDS if (value := getattr(self, name)) is not None}
        bias = {int(token_id): value for token_id, value in (self.logit_bias or {}).items()}
        if self.response_format is not None and not others.keys() & {"json_schema", "json_object"}:
            others |= self.response_format.sampling_fields()
        return SamplingParams(logit_bias=bias, **given, **others)
