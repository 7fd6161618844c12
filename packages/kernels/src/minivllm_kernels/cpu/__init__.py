"""C kernels for bfloat16 on processors with AVX512-BF16: what PyTorch has no single operation for.

from minivllm_kernels.cpu.library import load_library
from minivllm_kernels.cpu.ops import CpuOps

ops = CpuOps(load_library(), num_threads=2)
"""
