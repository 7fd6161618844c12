"""What a caller may ask of one generation."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.json_schema import schema_text

MAX_CHOICES = 128
MAX_STOP_STRINGS = 4
MAX_LOGPROBS = 20
MAX_BIAS = 100.0
MAX_SALT_CHARS = 256
"""Of `cache_salt`, of which every choice has a copy."""

_LARGEST_FLOAT = sys.float_info.max


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the tokens of one request are drawn and when generation ends.

    Attributes:
        max_tokens: Most tokens to generate; None means all that context and KV pool have room for. 0 only scores
            the prompt and needs `prompt_logprobs`.
        temperature: 0–2; below 1e-5 the most probable token is taken (ties go to the lowest id).
        top_p: 0–1; keep the smallest set of most probable tokens with at least this mass. 0 keeps one token.
        top_k: Keep this many most probable tokens; 0 and -1 keep all.
        min_p: 0–1; keep tokens at least this probable relative to the most probable one.
        repetition_penalty: Above 0; the logit of a token that is in prompt or output is divided by it if positive and
            multiplied by it if negative, once however often the token occurs (Keskar et al. 2019; Hugging Face).
        presence_penalty: -2–2; taken once from the logit of every token generated before.
        frequency_penalty: -2–2; taken from the logit of a token for each time it was generated before.
        logit_bias: Token id to -100–100, added to the logit.
        seed: 64-bit; equal seeds give equal draws whatever else is running. None draws a random one.
        n: Choices per prompt, 1–128.
        stop: Up to four strings that end the text; they are not part of it unless asked for.
        stop_token_ids: Token ids that end generation like an end-of-sequence token.
        min_tokens: Until this many tokens exist no stop string, stop id or end-of-sequence ends generation.
        ignore_eos: Go on past end-of-sequence tokens.
        logprobs: 0–20; report the log-probability of every generated token and of this many most probable ones, from
            the raw logits. None reports nothing.
        prompt_logprobs: 0–20; the same for every prompt token but the first.
        json_schema: A JSON schema, as text or as an object, that the output follows; where it names properties, others
            are not generated. Needs the extra `minivllm-runtime[grammar]`.
        strict_schema: Refuse a json_schema with keywords that cannot be enforced; False ignores them.
        json_object: The output is a JSON object; the same as the schema {"type": "object"}.
        skip_special_tokens: Leave special tokens out of the text.
        include_stop_str_in_output: Keep the matched stop string in the text.
        priority: Lower is served first under the priority policy.
        cache_salt: Requests share cached prefixes only with requests of the same salt; at most 256 characters.
        output_schema: The text of the JSON schema that the output follows, however it was asked for; not a parameter.

    Raises:
        InvalidParameter: naming the value and the limit.
    """

    max_tokens: int | None = 16
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    seed: int | None = None
    n: int = 1
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    json_schema: str | Mapping[str, Any] | None = field(default=None, hash=False)
    strict_schema: bool = True
    json_object: bool = False
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    priority: int = 0
    cache_salt: str = ""
    output_schema: str | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        object.__setattr__(self, "stop", stop)
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids))
        object.__setattr__(self, "logit_bias", dict(self.logit_bias))
        self._check_numbers()
        self._check_penalties()
        self._check_lengths()
        self._check_stops()
        self._check_schema()
        self._check_salt()

    def _check_numbers(self) -> None:
        _check_range("temperature", self.temperature, 0.0, 2.0)
        _check_range("top_p", self.top_p, 0.0, 1.0)
        _check_range("min_p", self.min_p, 0.0, 1.0)
        _check_int("top_k", self.top_k, -1, None)
        _check_int("n", self.n, 1, MAX_CHOICES)
        _check_int("priority", self.priority, -(2**31), 2**31 - 1)
        if self.seed is not None:
            _check_int("seed", self.seed, -(2**63), 2**64 - 1)
        for name, value in (("logprobs", self.logprobs), ("prompt_logprobs", self.prompt_logprobs)):
            if value is not None:
                _check_int(name, value, 0, MAX_LOGPROBS)

    def _check_penalties(self) -> None:
        _check_range("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _check_range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _check_number("repetition_penalty", self.repetition_penalty)
        if not 0 < self.repetition_penalty <= _LARGEST_FLOAT:
            raise InvalidParameter(
                "repetition_penalty",
                f"repetition_penalty must be above 0 and finite, got {self.repetition_penalty}",
            )
        for token_id, bias in self.logit_bias.items():
            _check_int("logit_bias", token_id, 0, None)
            _check_range("logit_bias", bias, -MAX_BIAS, MAX_BIAS)

    def _check_lengths(self) -> None:
        _check_int("min_tokens", self.min_tokens, 0, None)
        if self.max_tokens is None:
            return
        _check_int("max_tokens", self.max_tokens, 1 if self.prompt_logprobs is None else 0, None)
        if self.min_tokens > self.max_tokens:
            raise InvalidParameter(
                "min_tokens", f"min_tokens ({self.min_tokens}) is above max_tokens ({self.max_tokens})"
            )

    def _check_schema(self) -> None:
        if self.json_object and self.json_schema is not None:
            raise InvalidParameter("json_schema", "json_schema and json_object exclude each other")
        if self.json_schema is not None:
            text = schema_text(self.json_schema, is_strict=self.strict_schema)
        elif self.json_object:
            text = '{"type": "object"}'
        else:
            return
        object.__setattr__(self, "output_schema", text)
        for name, value in (("min_tokens", self.min_tokens), ("ignore_eos", self.ignore_eos)):
            if value:
                raise InvalidParameter(
                    name, f"{name} ({value}) cannot be kept with JSON output, which ends where it is complete"
                )

    def _check_salt(self) -> None:
        if len(self.cache_salt) > MAX_SALT_CHARS:
            raise InvalidParameter(
                "cache_salt",
                f"cache_salt has {len(self.cache_salt)} characters; at most {MAX_SALT_CHARS} are allowed",
            )

    def _check_stops(self) -> None:
        if len(self.stop) > MAX_STOP_STRINGS:
            raise InvalidParameter(
                "stop", f"{len(self.stop)} stop strings; at most {MAX_STOP_STRINGS} are allowed"
            )
        for text in self.stop:
            if not isinstance(text, str) or not text:
                raise InvalidParameter("stop", "a stop string must be a non-empty string")
        for token_id in self.stop_token_ids:
            _check_int("stop_token_ids", token_id, 0, None)


def _check_number(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidParameter(name, f"{name} must be a number, got {value!r}")


def _check_range(name: str, value: float, low: float, high: float) -> None:
    _check_number(name, value)
    if not low <= value <= high:  # nor is it for NaN
        raise InvalidParameter(name, f"{name} must be between {low:g} and {high:g}, got {value}")


def _check_int(name: str, value: int, low: int, high: int | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidParameter(name, f"{name} must be an integer, got {value!r}")
    if value < low or (high is not None and value > high):
        limit = f"at least {low}" if high is None else f"between {low} and {high}"
        raise InvalidParameter(name, f"{name} must be {limit}, got {value}")
