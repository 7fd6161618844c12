"""How a client in an event loop reaches an engine, wherever that runs."""

from collections.abc import Callable
from typing import Protocol

from minivllm_runtime.messages import Command, EngineStats, StepOutput
from minivllm_runtime.model_config import ModelConfig
from minivllm_runtime.tokenizer import Tokenizer

OnOutput = Callable[[StepOutput], None]
OnDeath = Callable[[str], None]


class EngineConnection(Protocol):
    """One client's commands to an engine, and what comes back. Lives in one event loop, from `start` to `stop`."""

    async def start(self, on_output: OnOutput, on_death: OnDeath) -> None:
        """Connect; from now on both are called in the running loop.

        `on_death` gets the reason if the engine ends for any reason but `stop`.
        """
        ...

    def send(self, command: Command) -> None:
        """Queue a command; commands arrive in order."""
        ...

    async def stop(self) -> None:
        """Disconnect, and end the engine after its current step if it is ours. May be called again."""
        ...


class Engine(Protocol):
    """An engine that is ready to be connected to, in this process or another.

    Attributes:
        tokenizer, model_config: Of the model it serves.
        num_blocks, block_size: Of the KV pool.
        max_model_len: Most tokens of one request.
    """

    @property
    def tokenizer(self) -> Tokenizer: ...  # noqa: D102
    @property
    def model_config(self) -> ModelConfig: ...  # noqa: D102
    @property
    def dtype_name(self) -> str:
        """Of weights and KV cache: "bfloat16", for example."""
        ...

    @property
    def device_name(self) -> str:
        """Where it runs: "cpu" or "cuda"."""
        ...

    @property
    def kernels(self) -> str:
        """What computes: "PyTorch", "C" or "Triton"."""
        ...

    @property
    def num_blocks(self) -> int: ...  # noqa: D102
    @property
    def block_size(self) -> int: ...  # noqa: D102
    @property
    def max_model_len(self) -> int: ...  # noqa: D102
    def stats(self) -> EngineStats:
        """Gauges and counters before the first step."""
        ...

    def connect(self) -> EngineConnection:
        """A connection, not started."""
        ...
