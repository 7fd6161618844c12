"""Device, dtype and threads where the command line leaves them open: decided once, for every engine."""

from contextlib import suppress
from typing import Literal

from minivllm_bench.engines.interface import Device, DType
from minivllm_bench.errors import InvalidSetting, MissingExtra
from minivllm_bench.machine import read_cpu

DTypeChoice = Literal["auto", "float32", "bfloat16", "float16"]
DeviceChoice = Literal["auto", "cpu", "cuda"]
NATIVE_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""A CPU with one of these multiplies bfloat16 matrices without converting them first."""


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


def resolve_dtype(choice: DTypeChoice, device: Device) -> DType:
    """The dtype to run in: with "auto", bfloat16 on CUDA and on CPUs that multiply it, else float32."""
    if choice != "auto":
        return choice
    _, flags = read_cpu()
    return "bfloat16" if device == "cuda" or flags & NATIVE_BF16_FLAGS else "float32"


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
