"""Models, weights, sampling and the inference engine of minivllm.

`LLM` is imported on first use: it needs torch, which takes seconds to load, and the client side of the engine does not.
"""

from typing import TYPE_CHECKING, Any

from minivllm_runtime.config import EngineConfig
from minivllm_runtime.errors import (
    EngineDead,
    InvalidParameter,
    MinivllmError,
    ModelLoadError,
    QueueFull,
    RequestFailed,
)
from minivllm_runtime.outputs import CompletionOutput, RequestOutput, TokenLogprob, TopLogprob
from minivllm_runtime.sampling_params import SamplingParams

if TYPE_CHECKING:
    from minivllm_runtime.llm import LLM

__all__ = [
    "LLM",
    "CompletionOutput",
    "EngineConfig",
    "EngineDead",
    "InvalidParameter",
    "MinivllmError",
    "ModelLoadError",
    "QueueFull",
    "RequestFailed",
    "RequestOutput",
    "SamplingParams",
    "TokenLogprob",
    "TopLogprob",
]


def __getattr__(name: str) -> Any:
    if name == "LLM":
        from minivllm_runtime.llm import LLM

        return LLM
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
