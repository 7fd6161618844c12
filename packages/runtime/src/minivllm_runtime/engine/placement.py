"""Where an engine computes and in which dtype, where its settings leave that open."""

import torch

from minivllm_runtime.config import Device, DType
from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.model_config import ModelConfig


def resolve_device(choice: Device) -> torch.device:
    """The device of `choice`; with "auto" a CUDA device where there is one.

    Raises:
        InvalidParameter: "cuda" without a CUDA device.
    """
    available = torch.cuda.is_available()
    if choice == "cuda" and not available:
        raise InvalidParameter("device", "device is cuda, but no CUDA device is available")
    return torch.device("cuda" if available and choice != "cpu" else "cpu")


def resolve_dtype(choice: DType, model: ModelConfig, device: torch.device) -> torch.dtype:
    """The dtype of `choice`; with "auto" the checkpoint's on a GPU, and on a CPU what it multiplies natively."""
    name: str = choice
    if name == "auto":
        name = model.checkpoint_dtype if device.type == "cuda" else _native_dtype_of_cpu()
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]


def _native_dtype_of_cpu() -> str:
    multiplies_bfloat16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return "bfloat16" if multiplies_bfloat16 else "float32"
