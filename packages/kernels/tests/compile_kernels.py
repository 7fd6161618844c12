"""Compiles every kernel for GPUs that need not be there: `compile_kernels.py 90` for compute capability 9.0.

Prints a line of JSON for each launch: the kernel's name, shared memory in bytes, and what names the compiled code.
"""

import json
import sys
from functools import partial

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from minivllm_kernels.decode_inputs import decode_inputs
from minivllm_kernels.decode_step import PagedContexts
from minivllm_kernels.gemv import gemv
from minivllm_kernels.head_norms import HeadNorms
from minivllm_kernels.paged_decode_attention import paged_decode_attention, rotate_cache_and_attend
from minivllm_kernels.paged_prefill_attention import locate_tiles, paged_prefill_attention
from minivllm_kernels.reshape_and_cache import reshape_and_cache
from minivllm_kernels.rms_norm import add_rms_norm, rms_norm
from minivllm_kernels.rotary_embedding import rotary_embedding
from minivllm_kernels.rotate_and_cache import rotate_and_cache
from minivllm_kernels.sample import sample
from minivllm_kernels.sampling_table import SamplingTable
from minivllm_kernels.silu_and_mul import silu_and_mul
from minivllm_kernels.small_batch_linear import small_batch_gated_linear, small_batch_linear
from minivllm_kernels.tensor_checks import GROUP_ROWS, MAX_SMALL_BATCH


class AbsentGPU:
    """What a launch asks of the driver before it compiles."""

    def __init__(self, capability: int) -> None:
        self._capability = capability

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self._capability, warp_size=32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def compile_only(capability: int) -> None:
    """From now on a launch compiles its kernel and reports it."""

    def compile_it(kernel: JITFunction, grid: tuple[int, ...], *args, **options) -> None:
        if "EARLY" in kernel.arg_names and capability >= 90:
            options |= {
                "EARLY": True,
                "launch_pdl": True,
            }  # see early_launch, which looks at the device of a tensor
        compiled = kernel.warmup(*args, grid=grid, **options)
        print(json.dumps([kernel.fn.__name__, compiled.metadata.shared, compiled.hash]))

    driver.set_active(AbsentGPU(capability))
    JITFunction.__getitem__ = lambda kernel, grid: partial(compile_it, kernel, grid)


def launch_all(dtype: torch.dtype) -> None:
    """Each kernel as a model launches it; values are never looked at."""
    num_heads, num_kv_heads, head_dim = 32, 4, 64
    num_tokens, hidden_size = 5, num_heads * head_dim
    heads = torch.zeros(num_tokens, num_heads + 2 * num_kv_heads, head_dim, dtype=dtype)
    query, key, value = heads.split((num_heads, num_kv_heads, num_kv_heads), dim=1)
    caches = torch.zeros(2, 8, num_kv_heads, 16, head_dim, dtype=dtype).unbind(0)
    block_tables = torch.zeros(num_tokens, 64, dtype=torch.int32)
    context_lens = torch.zeros(num_tokens, dtype=torch.int32)
    query_start_loc = torch.zeros(num_tokens + 1, dtype=torch.int32)
    numbers = torch.zeros(num_tokens, dtype=torch.int64)
    cos_sin_cache = torch.zeros(64, head_dim)

    attended = (*caches, block_tables)
    paged_decode_attention(query, *attended, context_lens, 1.0)
    for max_query_len in (1, 300):
        tiles = locate_tiles(query_start_loc, caches[0], num_heads, num_tokens, max_query_len)
        paged_prefill_attention(query, *attended, query_start_loc, context_lens, 1.0, tiles)
    for norms in (None, HeadNorms(cos_sin_cache[0], cos_sin_cache[1], 1e-6)):
        contexts = PagedContexts(block_tables, context_lens, context_lens)
        rotate_cache_and_attend(heads, cos_sin_cache, *caches, contexts, 1.0, norms)
        rotate_and_cache(heads, numbers, cos_sin_cache, numbers, *caches, norms)
    rotary_embedding(query, key, numbers, cos_sin_cache)
    reshape_and_cache(key, value, *caches, numbers)

    hidden, weight = torch.zeros(num_tokens, hidden_size, dtype=dtype), torch.ones(hidden_size, dtype=dtype)
    rms_norm(hidden, weight, 1e-5)
    add_rms_norm(hidden, hidden.clone(), weight, 1e-5)
    add_rms_norm(torch.zeros(4, *hidden.shape), hidden, weight, 1e-5)
    silu_and_mul(hidden)
    silu_and_mul(hidden, GROUP_ROWS)
    for bias in (None, hidden[0]):
        gemv(hidden[:1], hidden.new_zeros(hidden_size, hidden_size), bias)

    token_ids = torch.zeros(9, 512, dtype=torch.int64)
    if driver.active.get_current_target().arch == 90:
        square = hidden.new_zeros(hidden_size, hidden_size)
        for num_rows in (1, 16, 17, 33, MAX_SMALL_BATCH):
            for num_splits in (1, 4):
                small_batch_linear(
                    hidden.new_zeros(num_rows, hidden_size), square, hidden[0], num_splits=num_splits
                )
            small_batch_gated_linear(hidden.new_zeros(num_rows, hidden_size), square, hidden[0])

    table = SamplingTable(torch.zeros(9, 3), torch.zeros(9, 4, dtype=torch.int64))
    for logits in (hidden.new_zeros(num_tokens, 32_000), torch.zeros(num_tokens, 32_000)):
        sample(logits, token_ids, numbers, numbers, table)
    decode_inputs(numbers, numbers, token_ids, torch.zeros(9, 64, dtype=torch.int32), 16)


if __name__ == "__main__":
    compile_only(int(sys.argv[1]))
    launch_all(torch.float16)
