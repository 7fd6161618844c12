"""What the benchmark asks of an engine: token ids in, token ids and text out, and its own time for that."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from minivllm_bench.workloads import BenchRequest

DType = Literal["float32", "bfloat16", "float16"]
Device = Literal["cpu", "cuda"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What every engine of one comparison is built from.

    Attributes:
        model: "smollm2", a local folder, a `.gguf` file or a hub id.
        dtype: Of weights, activations and KV cache.
        device: Where it runs.
        num_threads: CPU threads for tensor work, the same for each engine.
        dummy_weights: Whether `model` is a folder without weights, to be filled in at random.
        temperature: Of sampling; 0 is greedy.
        gpu_memory_share: Of all memory of the GPU, what one engine may take for weights, activations and KV cache.
        vllm_python: Python interpreter of an environment that has vLLM; None is this one, if it has it.
        nano_vllm_python: The same for nano-vllm.
    """

    model: str
    dtype: DType
    device: Device
    num_threads: int
    dummy_weights: bool = False
    temperature: float = 0.0
    gpu_memory_share: float = 0.9
    vllm_python: Path | None = None
    nano_vllm_python: Path | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """What an engine generated for one request.

    Attributes:
        token_ids: The new ids, in order.
        text: Their text, without special tokens.
    """

    token_ids: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class TimedRun:
    """One run over a batch of requests.

    Attributes:
        completions: One per request, in request order.
        seconds: From prompt ids in memory to ids and text of every request in memory.
    """

    completions: tuple[Completion, ...]
    seconds: float


class Engine(Protocol):
    """An engine with its model loaded."""

    @property
    def vocab_size(self) -> int:
        """Ids below this are valid in a prompt."""
        ...

    def run(self, requests: Sequence[BenchRequest]) -> TimedRun:
        """Generate exactly `output_len` tokens a request, without regard to end-of-sequence.

        Nothing computed in an earlier run is used again.

        Raises:
            EngineFailed: the engine stopped working.
        """
        ...

    def close(self) -> None:
        """Give back memory and processes; the engine is not used afterwards."""
        ...
