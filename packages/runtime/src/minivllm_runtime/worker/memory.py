"""How many KV blocks fit."""

import torch

from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.host_memory import host_memory_bytes
from minivllm_runtime.model_config import ModelConfig
from minivllm_runtime.worker.cuda_graphs import captured_rows

_CPU_FRACTION = 0.25
_CPU_LIMIT_BYTES = 4 * 2**30
_SAMPLER_BYTES_PER_LOGIT = 32
"""Logits in the model's precision and in float32, probabilities, and their sums in float64, twice."""


def kv_block_bytes(config: ModelConfig, block_size: int, dtype: torch.dtype) -> int:
    """Bytes of one block over all layers, K and V."""
    return 2 * config.num_layers * config.num_kv_heads * block_size * config.head_dim * dtype.itemsize


def activation_bytes(
    config: ModelConfig, max_num_seqs: int, max_num_batched_tokens: int, dtype: torch.dtype
) -> int:
    """Bytes that the largest step needs beside weights and KV: an upper bound from the shapes.

    At its widest moment a layer holds the residual stream, a normed copy and a product for every token, and gate, up
    and their gated half; everything is counted twice, for what the allocator keeps apart. Captured steps keep logits.
    """
    width = 4 * config.hidden_size + 3 * config.intermediate_size
    width += 2 * (config.num_heads + config.num_kv_heads) * config.head_dim
    layer_bytes = 2 * max_num_batched_tokens * width * dtype.itemsize
    graph_bytes = captured_rows(max_num_seqs, max_num_batched_tokens) * config.vocab_size * dtype.itemsize
    return layer_bytes + graph_bytes + max_num_seqs * config.vocab_size * _SAMPLER_BYTES_PER_LOGIT


def kv_budget_bytes(device: torch.device, gpu_memory_utilization: float, reserved_bytes: int) -> int:
    """Bytes that the KV pool may take when nobody chose its size.

    On a CPU a quarter of the machine's memory, or of what a container is limited to, at most 4 GiB. On a GPU its memory
    times `gpu_memory_utilization`, less what is in use now, so weights must be loaded before, and less
    `reserved_bytes`.

    Raises:
        InvalidParameter: nothing is left on the GPU.
    """
    if device.type != "cuda":
        return min(int(_memory_bytes(device) * _CPU_FRACTION), _CPU_LIMIT_BYTES)
    torch.cuda.empty_cache()  # what loading left behind is free, too
    free_bytes, total_bytes = torch.cuda.mem_get_info(device)
    granted_bytes, used_bytes = int(total_bytes * gpu_memory_utilization), total_bytes - free_bytes
    budget = granted_bytes - used_bytes - reserved_bytes
    if budget <= 0:
        raise InvalidParameter(
            "gpu_memory_utilization",
            f"gpu_memory_utilization ({gpu_memory_utilization}) grants {granted_bytes} of {total_bytes} bytes, but "
            f"{used_bytes} are in use, weights included, and a step needs {reserved_bytes}: no KV cache fits",
        )
    return budget


def default_num_blocks(block_bytes: int, most_useful: int, budget_bytes: int) -> int:
    """Blocks for the KV pool when nobody chose a number: what fits into the budget, never more than `most_useful`.

    Raises:
        InvalidParameter: not even one block fits.
    """
    num_blocks = min(budget_bytes // block_bytes, most_useful)
    if num_blocks < 1:
        raise InvalidParameter(
            "num_blocks", f"no KV block of {block_bytes} bytes fits into {budget_bytes} bytes of memory"
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
    """All memory of the device that is for us, in use or not."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    return host_memory_bytes()
