"""Picks the operations for a device, a dtype and a model's shape."""

import logging

import torch

from minivllm_kernels.cpu.library import MAX_GROUP_SIZE, MAX_HEAD_DIM, load_library
from minivllm_kernels.cpu.ops import CpuOps
from minivllm_kernels.errors import CpuKernelsUnavailable
from minivllm_runtime.device.interface import DeviceOps
from minivllm_runtime.device.native_ops import NativeOps
from minivllm_runtime.device.torch_ops import TorchOps
from minivllm_runtime.model_config import ModelConfig

_logger = logging.getLogger(__name__)


def choose_ops(device: torch.device, dtype: torch.dtype, config: ModelConfig) -> DeviceOps:
    """The fastest operations that compute this model on `device` in `dtype`."""
    if device.type == "cuda":
        # Imported here: a CPU needs no Triton.
        from minivllm_runtime.device.triton_ops import TritonOps

        return TritonOps(dtype)
    if dtype != torch.bfloat16 or not _fits_native(config):
        return TorchOps()
    try:
        library = load_library()
    except CpuKernelsUnavailable as reason:
        _logger.warning("slower PyTorch operations are used: %s", reason)
        return TorchOps()
    return NativeOps(
        CpuOps(library, torch.get_num_threads()), has_matrix_tiles=torch.cpu._is_amx_tile_supported()
    )


def _fits_native(config: ModelConfig) -> bool:
    group_size = config.num_heads // config.num_kv_heads
    sizes_are_even = config.hidden_size % 2 == 0 and config.intermediate_size % 2 == 0
    return (
        sizes_are_even
        and config.head_dim % 16 == 0
        and config.head_dim <= MAX_HEAD_DIM
        and group_size <= MAX_GROUP_SIZE
    )
