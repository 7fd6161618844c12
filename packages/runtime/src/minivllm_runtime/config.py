"""Settings of an engine, frozen once it is built."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from minivllm_runtime.errors import InvalidParameter

DType = Literal["auto", "float32", "bfloat16", "float16"]
Device = Literal["auto", "cpu", "cuda"]
LoadFormat = Literal["auto", "dummy"]
SchedulingPolicy = Literal["fcfs", "priority", "fair"]

_LEAST: Mapping[str, int] = {
    "num_blocks": 1,
    "block_size": 1,
    "max_model_len": 2,  # a token of prompt and one of output
    "max_num_seqs": 1,
    "max_num_batched_tokens": 1,
    "max_num_waiting": 1,
    "num_threads": 1,
}
_MOST: Mapping[str, int] = {
    "max_num_seqs": 2**16,  # each has a row of its own for as many ids as a request may have
    "num_threads": 2**10,  # the tensor library crashes when the system gives it no more
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What an engine is built from.

    Attributes:
        model: A bundled name ("smollm2"), a local folder, a `.gguf` file or a hub id.
        load_format: "auto" reads the weights; "dummy" fills them in at random, from a local folder that needs none:
            for measuring shapes.
        dtype: Of weights, activations and KV cache. "auto" on a CPU is bfloat16 where the CPU multiplies it natively
            and float32 elsewhere; on a GPU it is the checkpoint's.
        device: "auto" takes a CUDA device when there is one.
        num_blocks: KV blocks in the pool; None sizes the pool from free memory.
        gpu_memory_utilization: Share of the GPU's memory that weights, activations and KV pool may take together, where
            `num_blocks` is None; above 0, at most 1.
        block_size: Tokens per KV block.
        max_model_len: Most tokens of one request, prompt included; None is what model and pool both allow.
        max_num_seqs: Most requests running at once; None takes 64 on a CPU and 256 on a GPU.
        max_num_batched_tokens: Token budget of one step; None takes 512 on a CPU, where a larger step would keep
            everybody waiting for more than half a second, and 4096 on a GPU, or `max_num_seqs` where that is more.
        max_num_waiting: Most requests waiting; more are refused.
        scheduling_policy: Who is admitted next: "fcfs" the first that came, "priority" the smallest `priority` (with
            ageing), "fair" the tenant that has had least.
        enable_prefix_caching: Reuse the KV blocks of equal prompt prefixes.
        run_ahead: Schedule step N+1 while step N runs; None does so on a GPU.
        num_threads: CPU threads for tensor work; None leaves the library's choice.
        engine_process: Whether an AsyncEngine computes in a process of its own. In a thread of the same process each
            kernel's return waits until text and HTTP give up the interpreter, and streams are half as fast. `LLM` has
            nobody to wait for and always computes in its own process.

    Raises:
        InvalidParameter: naming the value and the limit.
    """

    model: str = "smollm2"
    load_format: LoadFormat = "auto"
    dtype: DType = "auto"
    device: Device = "auto"
    num_blocks: int | None = None
    gpu_memory_utilization: float = 0.9
    block_size: int = 16
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_waiting: int = 1024
    scheduling_policy: SchedulingPolicy = "fcfs"
    enable_prefix_caching: bool = True
    run_ahead: bool | None = None
    num_threads: int | None = None
    engine_process: bool = True

    def __post_init__(self) -> None:
        if not self.model:
            raise InvalidParameter("model", "model must not be empty")
        for name, choices in (
            ("load_format", get_args(LoadFormat)),
            ("dtype", get_args(DType)),
            ("device", get_args(Device)),
            ("scheduling_policy", get_args(SchedulingPolicy)),
        ):
            if getattr(self, name) not in choices:
                raise InvalidParameter(
                    name, f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}"
                )
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise InvalidParameter(name, f"{name} must be at least {least}, got {value}")
        for name, most in _MOST.items():
            value = getattr(self, name)
            if value is not None and value > most:
                raise InvalidParameter(name, f"{name} must be at most {most}, got {value}")
        if not 0 < self.gpu_memory_utilization <= 1:
            raise InvalidParameter(
                "gpu_memory_utilization",
                f"gpu_memory_utilization must be above 0 and at most 1, got {self.gpu_memory_utilization}",
            )
        if (
            self.max_num_batched_tokens is not None
            and self.max_num_seqs is not None
            and self.max_num_batched_tokens < self.max_num_seqs
        ):
            raise InvalidParameter(
                "max_num_batched_tokens",
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) is below max_num_seqs ({self.max_num_seqs}): "
                "a step could not serve every running request",
            )
