"""Building an engine with a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from minivllm_runtime.config import EngineConfig

if TYPE_CHECKING:
    from minivllm_runtime.engine.async_engine import AsyncEngine
    from minivllm_runtime.engine.process.remote_engine import RemoteEngine


def load_engine(config: EngineConfig, console: Console) -> AsyncEngine:
    """Builds the engine and shows each stage of it on `console`, if that is a terminal.

    Raises:
        ModelLoadError: The model is missing, damaged or of an unsupported kind.
        InvalidParameter: A setting does not fit the model.
    """
    with _stages_on(console) as report:
        from minivllm_runtime.engine.async_engine import AsyncEngine

        return AsyncEngine.build(config, progress=report)


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


def describe_engine(engine: AsyncEngine) -> str:
    """Returns one line with what the settings came to."""
    return (
        f"{engine.dtype} on {engine.device}, {engine.num_blocks} KV blocks of {engine.block_size} tokens, "
        f"max_model_len {engine.max_model_len}"
    )
