"""Engines by their command-line names; opening one imports its packages, naming none does."""

from collections.abc import Callable

from minivllm_bench.engines.interface import Engine, EngineSettings
from minivllm_bench.engines.peer_process import open_nano_vllm, open_vllm
from minivllm_bench.errors import InvalidSetting, MissingExtra


def open_engine(name: str, settings: EngineSettings) -> Engine:
    """Load the model into the engine called `name`: one of `ENGINE_NAMES`.

    Raises:
        InvalidSetting: no engine has that name.
        MissingExtra: its packages are not installed.
        EngineFailed: it cannot load the model.
    """
    check_engine_name(name)
    try:
        return OPENERS[name](settings)
    except ModuleNotFoundError as error:
        extra = EXTRAS[name]
        raise MissingExtra(
            f"engine {name} needs the module {error.name}: install minivllm-bench[{extra}]"
        ) from error


def check_engine_name(name: str) -> None:
    """Whether an engine is called `name`.

    Raises:
        InvalidSetting: none is; the message lists those that exist.
    """
    if name not in OPENERS:
        raise InvalidSetting(f"no engine is called {name!r}; there are {', '.join(OPENERS)}")


def _open_minivllm(settings: EngineSettings) -> Engine:
    from minivllm_bench.engines.minivllm import MinivllmEngine

    return MinivllmEngine.load(settings)


def _open_hf(settings: EngineSettings) -> Engine:
    from minivllm_bench.engines.hf import HfEngine

    return HfEngine.load(settings)


def _open_hf_continuous(settings: EngineSettings) -> Engine:
    from minivllm_bench.engines.hf_continuous import HfContinuousEngine

    return HfContinuousEngine.load(settings)


OPENERS: dict[str, Callable[[EngineSettings], Engine]] = {
    "minivllm": _open_minivllm,
    "hf": _open_hf,
    "hf-cb": _open_hf_continuous,
    "vllm": open_vllm,
    "nano-vllm": open_nano_vllm,
}
EXTRAS = {"minivllm": "engine", "hf": "hf", "hf-cb": "hf", "vllm": "hf", "nano-vllm": "hf"}
"""The extra of this package that brings what an engine imports."""
