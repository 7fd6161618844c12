"""Building an engine with a progress bar."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from minivllm_runtime.config import EngineConfig

if TYPE_CHECKING:
    from minivllm_runtime.engine.async_engine import AsyncEngine


def load_engine(config: EngineConfig, console: Console) -> AsyncEngine:
    """Builds the engine and shows each stage of it on `console`, if that is a terminal.

    Raises:
        ModelLoadError: The model is missing, damaged or of an unsupported kind.
        InvalidParameter: A setting does not fit the model.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        libraries = progress.add_task("libraries", total=None)
        from minivllm_runtime.engine.async_engine import AsyncEngine

        progress.update(libraries, total=1, completed=1)
        stages: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in stages:
                stages[stage] = progress.add_task(stage)
            progress.update(stages[stage], completed=done, total=total)

        return AsyncEngine.build(config, progress=report)


def describe_engine(engine: AsyncEngine) -> str:
    """Returns one line with what the settings came to."""
    return (
        f"{engine.dtype} on {engine.device}, {engine.num_blocks} KV blocks of {engine.block_size} tokens, "
        f"max_model_len {engine.max_model_len}"
    )
