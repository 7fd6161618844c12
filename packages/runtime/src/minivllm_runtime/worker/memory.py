"""How many KV blocks fit."""

import os

import torch

from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.models.model_config import ModelConfig

_CPU_FRACTION = 0.25
_CPU_LIMIT_BYTES = 4 * 2**30
_CUDA_FRACTION = 0.9


def kv_block_bytes(config: ModelConfig, block_size: int, dtype: torch.dtype) -> int:
    """Bytes of one block over all layers, K and V."""
    return 2 * config.num_layers * config.num_kv_heads * block_size * config.head_dim * dtype.itemsize


def default_num_blocks(block_bytes: int, most_useful: int, device: torch.device) -> int:
    """Blocks for the KV pool when nobody chose a number.

    On a CPU a quarter of the machine's memory, at most 4 GiB; on a GPU nine tenths of what is free now, so weights must
    be loaded before. Never more than `most_useful`.

    Raises:
        InvalidParameter: not even one block fits.
    """
    if device.type == "cuda":
        free_bytes, _ = torch.cuda.mem_get_info(device)
        budget = int(free_bytes * _CUDA_FRACTION)
    else:
        budget = min(int(_memory_bytes(device) * _CPU_FRACTION), _CPU_LIMIT_BYTES)
    num_blocks = min(budget // block_bytes, most_useful)
    if num_blocks < 1:
        raise InvalidParameter(
            "num_blocks", f"no KV block of {block_bytes} bytes fits into {budget} bytes of memory"
        )
    return num_blocks


def check_pool_fits(num_blocks: int, block_bytes: int, device: torch.device) -> None:
    """Refuse a chosen pool that the device cannot hold even if it holds nothing else.

    Raises:
        InvalidParameter: the pool is larger than the device's memory.
    """
    pool_bytes, memory_bytes = num_blocks * block_bytes, _memory_bytes(device)
    if pool_bytes > memory_bytes:
        raise InvalidParameter(
            "num_blocks",
            f"num_blocks ({num_blocks}) of {block_bytes} bytes each take {pool_bytes} bytes; "
            f"{device} has {memory_bytes} bytes of memory",
        )


def _memory_bytes(device: torch.device) -> int:
    """All memory of the device, in use or not."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
