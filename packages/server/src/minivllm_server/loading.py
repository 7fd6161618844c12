"""Building an engine with a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from minivllm_runtime.config import EngineConfig
from minivllm_runtime.errors import InvalidParameter

if TYPE_CHECKING:
    from minivllm_runtime.engine.async_engine import AsyncEngine
    from minivllm_runtime.engine.process.remote_engine import RemoteEngine
    from minivllm_runtime.model_config import ModelConfig


def load_engine(config: EngineConfig, console: Console, *, max_tokens: int | None = None) -> AsyncEngine:
    """Builds the engine.

    Args:
        config: What to build.
        console: Shows each stage, if it is a terminal.
        max_tokens: What requests will ask for; refused before weights are read where no prompt leaves that room.

    Raises:
        ModelLoadError: The model is missing, damaged or of an unsupported kind.
        InvalidParameter: A setting or `max_tokens` does not fit the model.
    """

    def check_room(model: ModelConfig) -> None:
        context = config.max_model_len or model.max_position_embeddings
        if max_tokens is not None and max_tokens >= context:
            raise InvalidParameter(
                "max_tokens", f"max_tokens ({max_tokens}) and a prompt exceed the context of {context} tokens"
            )

    with _stages_on(console) as report:
        from minivllm_runtime.engine.async_engine import AsyncEngine

        return AsyncEngine.build(config, progress=report, on_model=check_room)


def load_engine_process(config: EngineConfig, console: Console) -> RemoteEngine:
    """Starts an engine process, whatever `config` says of one; otherwise as `load_engine`."""
    with _stages_on(console) as report:
        from minivllm_runtime.engine.process.remote_engine import RemoteEngine

        return RemoteEngine.spawn(config, progress=report)


@contextmanager
def _stages_on(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """Shows a bar for each stage that is reported, and one for the imports that come before."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        libraries = progress.add_task("libraries", total=None)
        stages: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int) -> None:
            progress.update(libraries, total=1, completed=1)
            if stage not in stages:
                stages[stage] = progress.add_task(stage)
            progress.update(stages[stage], completed=done, total=total)

        yield report


def describe_engine(engine: AsyncEngine | RemoteEngine, model: str) -> str:
    """Returns one line with what the settings came to; `model` is what they call it."""
    return (
        f"{model}: {engine.dtype_name} on {engine.device_name} with {engine.kernels} kernels, "
        f"{engine.num_blocks} KV blocks of {engine.block_size} tokens, max_model_len {engine.max_model_len}"
    )
