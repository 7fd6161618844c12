"""Device, dtype and threads where the command line leaves them open: decided once, for every engine."""

from contextlib import suppress
from pathlib import Path
from typing import Literal, cast

from minivllm_bench.engines.interface import Device, DType
from minivllm_bench.errors import EngineFailed, InvalidSetting, MissingExtra

DTypeChoice = Literal["auto", "float32", "bfloat16", "float16"]
DeviceChoice = Literal["auto", "cpu", "cuda"]


def resolve_device(choice: DeviceChoice) -> Device:
    """The device to run on: with "auto", CUDA where there is a device.

    Raises:
        InvalidSetting: "cuda" without a CUDA device.
        MissingExtra: PyTorch is not installed.
    """
    _require_torch()
    import torch

    if choice == "cuda" and not torch.cuda.is_available():
        raise InvalidSetting("--device cuda: this machine has no CUDA device that PyTorch can use")
    if choice == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return choice


def resolve_dtype(choice: DTypeChoice, device: Device, model: str, *, has_weights: bool = True) -> DType:
    """The dtype to run in: with "auto", the one that minivllm's engine takes for this model on this device.

    Args:
        choice: As on the command line.
        device: Resolved.
        model: As in `EngineSettings`.
        has_weights: False for a folder without weights.

    Raises:
        MissingExtra: "auto" without minivllm's runtime.
        EngineFailed: "auto", and the runtime does not know the model.
    """
    if choice != "auto":
        return choice
    try:
        from minivllm_runtime.engine import placement
        from minivllm_runtime.errors import ModelLoadError
        from minivllm_runtime.loader.checkpoint import open_checkpoint
        from minivllm_runtime.loader.dummy_checkpoint import DummyCheckpoint
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"--dtype auto needs the module {error.name}: install minivllm-bench[engine], or name a dtype"
        ) from error
    import torch

    try:
        checkpoint = open_checkpoint(model) if has_weights else DummyCheckpoint(Path(model))
    except ModelLoadError as error:
        raise EngineFailed(f"minivllm cannot load {model}: {error} (--dtype auto is its choice)") from error
    dtype = placement.resolve_dtype(choice, checkpoint.config, torch.device(device))
    return cast("DType", str(dtype).removeprefix("torch."))


def default_threads() -> int:
    """CPU threads that PyTorch takes by itself.

    Raises:
        MissingExtra: PyTorch is not installed.
    """
    _require_torch()
    import torch

    return torch.get_num_threads()


def _require_torch() -> None:
    with suppress(ModuleNotFoundError):
        import numpy as np  # noqa: F401  # PyTorch imports it from C, where Ctrl-C would be lost
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError:
        raise MissingExtra(
            "PyTorch is not installed: install minivllm-bench[engine] or minivllm-bench[hf]"
        ) from None
