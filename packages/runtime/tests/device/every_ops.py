"""The implementations of the CPU's operations, each with a dtype that it computes in."""

import pytest
import torch

from minivllm_kernels.cpu.library import load_library
from minivllm_kernels.cpu.ops import CpuOps
from minivllm_kernels.errors import CpuKernelsUnavailable
from minivllm_runtime.device.native_ops import NativeOps
from minivllm_runtime.device.torch_ops import TorchOps

EVERY_OPS = [
    ("torch", torch.float32),
    ("torch", torch.bfloat16),
    ("torch", torch.float16),
    ("native", torch.bfloat16),
]


def ops_or_skip(name):
    if name == "torch":
        return TorchOps()
    try:
        return NativeOps(CpuOps(load_library(), num_threads=2), has_matrix_tiles=False)
    except CpuKernelsUnavailable as reason:
        pytest.skip(str(reason))
