"""The settings of the commands: flags first, then MINIVLLM_* variables, then the defaults below.

This is the only place of the project that reads the environment.
"""

import os
import re
from dataclasses import fields, replace
from difflib import get_close_matches
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Self
from urllib.parse import urlsplit

from pydantic import AliasChoices, Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from minivllm_runtime.config import Device, DType, EngineConfig, LoadFormat, SchedulingPolicy
from minivllm_runtime.errors import InvalidParameter
from minivllm_server.api_keys import KeyLimits, KeyRing, parse_key, read_key_file
from minivllm_server.logs import LogFormat, LogLevel
from minivllm_server.tool_calls.formats import ToolCallFormat

ENV_PREFIX = "MINIVLLM_"
_ORIGIN: Final = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^*/?#\sA-Z]+")
"""What a browser sends as `Origin`, with which an allowed one is compared as text; `*` stands for all."""


class EngineSettings(BaseSettings):
    """What an engine is built from; the fields are those of `EngineConfig`, which checks the ranges."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_ignore_empty=True, frozen=True, populate_by_name=True
    )

    model: str = Field("smollm2", description="Bundled name, local folder, .gguf file or hub id.")
    load_format: LoadFormat = Field(
        "auto", description="dummy: random weights, from a folder that needs none."
    )
    dtype: DType = Field("auto", description="Of weights, activations and KV cache.")
    device: Device = Field("auto", description="auto takes a CUDA device when there is one.")
    num_blocks: int | None = Field(
        None, description="KV blocks in the pool; unset: as many as memory allows."
    )
    gpu_memory_utilization: float = Field(
        0.9, description="Share of the GPU's memory for weights, activations and KV blocks."
    )
    block_size: int = Field(16, description="Tokens per KV block.")
    max_model_len: int | None = Field(
        None, description="Most tokens of one request; unset: model and pool decide."
    )
    max_num_seqs: int | None = Field(
        None, description="Most requests running at once; unset: 64 on a CPU, 256 on a GPU."
    )
    max_num_batched_tokens: int | None = Field(
        None, description="Token budget of one step; unset: 512 on a CPU, 4096 on a GPU."
    )
    max_num_waiting: int = Field(1024, description="Most requests waiting; more are refused.")
    scheduling_policy: SchedulingPolicy = Field(
        "fcfs", description="Who is admitted next; with several API keys the default is fair."
    )
    enable_prefix_caching: bool = Field(True, description="Reuse the KV blocks of equal prompt prefixes.")
    run_ahead: bool | None = Field(None, description="Schedule a step while one runs; unset: on a GPU only.")
    num_threads: int | None = Field(None, description="CPU threads for tensor work.")
    engine_process: bool = Field(
        True,
        description="Compute in a process of its own, apart from HTTP and text: streams are twice as fast.",
    )

    @model_validator(mode="after")
    def _refuse_unknown_variables(self) -> Self:
        """A name that is spelled wrong must not leave a limit or a key unset unnoticed."""
        known = _variables()
        for name in map(str.upper, os.environ):
            if name.startswith(ENV_PREFIX) and name not in known:
                nearest = get_close_matches(name, known, n=1, cutoff=0)[0]
                raise ValueError(f"{name} is no setting; the nearest is {nearest}")
        return self

    def engine_config(self) -> EngineConfig:
        """Returns the engine's part of the settings.

        Raises:
            InvalidParameter: A value is out of its range.
        """
        return EngineConfig(**{field.name: getattr(self, field.name) for field in fields(EngineConfig)})


class ServerSettings(EngineSettings):
    """Settings of `minivllm serve`."""

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    served_model_name: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Name(s) clients may use for the model, the first one is reported; unset: as --model."
    )
    api_key: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        validation_alias=AliasChoices(f"{ENV_PREFIX}API_KEY", f"{ENV_PREFIX}API_KEYS"),
        description="Key(s) that clients must send, as name:key or key. Seen by all users of the machine: prefer "
        "--api-key-file.",
    )
    api_key_file: str | None = Field(
        None,
        description="File of keys: name:key per line, then limits of its own, requests_per_minute=N and so on.",
    )
    requests_per_minute: int | None = Field(None, ge=1, description="Most POST requests of one API key.")
    tokens_per_minute: int | None = Field(
        None, ge=1, description="Most prompt and generated tokens of one API key."
    )
    max_concurrent_requests: int | None = Field(
        None, ge=1, description="Most POST requests of one API key at the same time."
    )
    cors_allow_origin: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Web origin(s) whose pages may call the server; * is all."
    )
    trusted_proxy: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Address(es) or network(s) whose X-Forwarded-For and -Proto are believed."
    )
    log_format: LogFormat = Field("text", description="Of the lines on stderr.")
    log_level: LogLevel = Field(
        "info", description="Least severe messages that are logged; info has every request."
    )
    log_prompts: bool = Field(False, description="Log what clients ask, too.")
    otlp_endpoint: str | None = Field(
        None, description="URL of an OpenTelemetry collector that gets traces; needs minivllm-server[otel]."
    )
    api_processes: int = Field(
        1,
        ge=1,
        le=64,
        description="HTTP processes in front of the engine, which then has a process of its own.",
    )
    tool_call_format: ToolCallFormat = Field(
        "auto", description="How the model writes tool calls; auto: as its chat template teaches it."
    )
    max_body_bytes: int = Field(8 * 2**20, ge=1, description="Larger request bodies are refused unread.")
    drain_timeout_s: float = Field(
        30.0, ge=0, allow_inf_nan=False, description="Seconds open requests may take after SIGTERM."
    )
    engine_timeout_s: float = Field(
        120.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds the engine may take for a step; if it answers nothing for longer, /health says 503.",
    )
    read_timeout_s: float = Field(
        30.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds a client may take for a request's head, and for its body.",
    )
    write_timeout_s: float = Field(
        60.0, gt=0, allow_inf_nan=False, description="Seconds a client may take to catch up with reading."
    )

    @field_validator("served_model_name", "api_key", "cors_allow_origin", "trusted_proxy", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        """A variable holds several values separated by commas; a flag is given several times."""
        return tuple(each.strip() for each in value.split(",")) if isinstance(value, str) else value

    @field_validator("served_model_name")
    @classmethod
    def _refuse_empty_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if not all(names):
            raise ValueError("a model name must not be empty")
        return names

    @field_validator("trusted_proxy")
    @classmethod
    def _refuse_what_is_no_address(cls, addresses: tuple[str, ...]) -> tuple[str, ...]:
        for address in addresses:
            ip_network(address)
        return addresses

    @field_validator("cors_allow_origin")
    @classmethod
    def _refuse_what_is_no_origin(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if not _ORIGIN.fullmatch(origin):
                raise ValueError(
                    f"{origin!r} is no origin such as https://example.com, in small letters, nor *"
                )
        return origins

    @field_validator("otlp_endpoint")
    @classmethod
    def _refuse_what_is_no_url(cls, url: str | None) -> str | None:
        if url is not None:
            parts = urlsplit(url)
            if parts.scheme not in {"http", "https"} or not parts.hostname:
                raise ValueError("it must be a URL such as http://collector:4318/v1/traces")
        return url

    @property
    def model_names(self) -> tuple[str, ...]:
        """The names a request's `model` field may have; never empty."""
        return self.served_model_name or (self.model,)

    def engine_config(self) -> EngineConfig:
        """Returns the engine's part of the settings. Several API keys share fairly unless another policy is given.

        Raises:
            InvalidParameter: A value is out of its range.
        """
        config = super().engine_config()
        key_ring = self.key_ring()
        if key_ring is None or len(key_ring.keys) == 1 or "scheduling_policy" in self.model_fields_set:
            return config
        return replace(config, scheduling_policy="fair")

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        if self.api_processes > 1 and not self.engine_process:
            raise ValueError("api_processes above 1 needs engine_process")
        return self

    @model_validator(mode="after")
    def _refuse_to_be_open_by_accident(self) -> Self:
        """An empty variable counts as unset, but one that should have held a key was meant to close the server."""
        if not self.api_key and self.api_key_file is None:
            for name in ("API_KEY", "API_KEYS", "API_KEY_FILE"):
                if os.environ.get(ENV_PREFIX + name) == "":
                    raise ValueError(f"{ENV_PREFIX}{name} is empty: unset it to let everybody in")
        return self

    def key_ring(self) -> KeyRing | None:
        """Returns the API keys; None: everybody may come in.

        Raises:
            InvalidParameter: A key or the file of keys is wrong, or there are limits and no key to apply them to.
        """
        limits = KeyLimits(self.requests_per_minute, self.tokens_per_minute, self.max_concurrent_requests)
        keys = [parse_key(text, f"key{number}", limits) for number, text in enumerate(self.api_key, start=1)]
        if self.api_key_file is not None:
            keys += read_key_file(Path(self.api_key_file), limits)
        if keys:
            return KeyRing(keys)
        if limits.has_any:
            raise InvalidParameter(
                "api_key",
                "requests_per_minute, tokens_per_minute and max_concurrent_requests limit API keys: set one",
            )
        return None


def _variables() -> tuple[str, ...]:
    """Names of all variables, whichever command reads them."""
    return (*(ENV_PREFIX + name.upper() for name in ServerSettings.model_fields), f"{ENV_PREFIX}API_KEYS")
