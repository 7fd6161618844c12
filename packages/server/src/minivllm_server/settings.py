"""The settings of the commands: flags first, then MINIVLLM_* variables, then the defaults below.

This is the only place of the project that reads the environment.
"""

from dataclasses import fields
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from minivllm_runtime.config import Device, DType, EngineConfig, LoadFormat

ENV_PREFIX = "MINIVLLM_"


class EngineSettings(BaseSettings):
    """What an engine is built from; the fields are those of `EngineConfig`, which checks the ranges."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_ignore_empty=True, frozen=True
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
        None, description="Token budget of one step; unset: 512 on a CPU, 8192 on a GPU."
    )
    max_num_waiting: int = Field(1024, description="Most requests waiting; more are refused.")
    enable_prefix_caching: bool = Field(True, description="Reuse the KV blocks of equal prompt prefixes.")
    run_ahead: bool | None = Field(None, description="Schedule a step while one runs; unset: on a GPU only.")
    num_threads: int | None = Field(None, description="CPU threads for tensor work.")

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
    max_body_bytes: int = Field(8 * 2**20, ge=1, description="Larger request bodies are refused unread.")
    drain_timeout_s: float = Field(
        30.0, ge=0, allow_inf_nan=False, description="Seconds open requests may take after SIGTERM."
    )
    write_timeout_s: float = Field(
        60.0, gt=0, allow_inf_nan=False, description="Seconds a streaming client may refuse to read."
    )

    @field_validator("served_model_name", mode="before")
    @classmethod
    def _split_names(cls, value: Any) -> Any:
        """A variable holds several names separated by commas; a flag is given several times."""
        return tuple(name.strip() for name in value.split(",")) if isinstance(value, str) else value

    @field_validator("served_model_name")
    @classmethod
    def _refuse_empty_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if not all(names):
            raise ValueError("a model name must not be empty")
        return names

    @property
    def model_names(self) -> tuple[str, ...]:
        """The names a request's `model` field may have; never empty."""
        return self.served_model_name or (self.model,)
