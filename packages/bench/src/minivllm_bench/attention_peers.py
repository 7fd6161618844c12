"""Attention kernels of others, where they are installed, on the shapes that ours are timed on.

They get what they like best: FlashAttention its own block size, PyTorch contiguous prompts. None of them rotates or
writes the cache, as ours do.
"""

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

_FLASH_ATTENTION_BLOCK = 256
"""FlashAttention 2 takes pages of a multiple of this."""
_FLASHINFER_BLOCK = 16
_FLASHINFER_WORKSPACE_BYTES = 2**27

Call = Callable[[], Tensor]
Make = Callable[[], Call]
"""Draws a set of inputs and returns the call on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """R equal requests of which each has Q query tokens at the end of a context of C tokens.

    Q is 1 in a decode step; where it is C, the requests are whole prompts.
    """

    num_requests: int
    query_len: int
    context_len: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: str

    @property
    def is_prompt(self) -> bool:
        """Whether nothing was computed before."""
        return self.query_len == self.context_len

    def random(self, *shape: int) -> Tensor:
        """Normal numbers on the device."""
        return torch.randn(shape, dtype=self.dtype, device=self.device)

    def block_table(self, block_size: int) -> Tensor:
        """[R, ceil(C / block_size)] int32: every block once, in random order."""
        width = -(-self.context_len // block_size)
        blocks = torch.randperm(self.num_requests * width, device=self.device)
        return blocks.int().view(self.num_requests, width)


def attention_peers(shape: AttentionShape) -> Iterator[tuple[str, Make]]:
    """Every installed kernel for this shape, by name; the calls return [tokens, Hq, D] in some arrangement."""
    if shape.is_prompt:
        yield "torch flash", lambda: _torch_flash(shape)
    if importlib.util.find_spec("flash_attn") is not None:
        yield "flash-attn", lambda: _flash_attention(shape)
    if importlib.util.find_spec("flashinfer") is not None:
        yield "flashinfer", lambda: _flashinfer(shape)


def _torch_flash(shape: AttentionShape) -> Call:
    query = shape.random(shape.num_requests, shape.num_heads, shape.query_len, shape.head_dim)
    key, value = shape.random(2, shape.num_requests, shape.num_kv_heads, shape.context_len, shape.head_dim)

    def call() -> Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return functional.scaled_dot_product_attention(
                query, key, value, is_causal=True, enable_gqa=shape.num_heads > shape.num_kv_heads
            )

    return call


def _flash_attention(shape: AttentionShape) -> Call:
    from flash_attn import (  # type: ignore[import-not-found, unused-ignore]
        flash_attn_func,
        flash_attn_with_kvcache,
    )

    query = shape.random(shape.num_requests, shape.query_len, shape.num_heads, shape.head_dim)
    if shape.is_prompt:
        key, value = shape.random(
            2, shape.num_requests, shape.context_len, shape.num_kv_heads, shape.head_dim
        )
        return lambda: flash_attn_func(query, key, value, causal=True)
    block_table = shape.block_table(_FLASH_ATTENTION_BLOCK)
    keys, values = shape.random(
        2, block_table.numel(), _FLASH_ATTENTION_BLOCK, shape.num_kv_heads, shape.head_dim
    )
    lengths = torch.full((shape.num_requests,), shape.context_len, dtype=torch.int32, device=shape.device)
    return lambda: flash_attn_with_kvcache(
        query, keys, values, cache_seqlens=lengths, block_table=block_table, causal=True
    )


def _flashinfer(shape: AttentionShape) -> Call:
    import flashinfer  # type: ignore[import-not-found, unused-ignore]

    block_table = shape.block_table(_FLASHINFER_BLOCK)
    pages = shape.random(block_table.numel(), 2, shape.num_kv_heads, _FLASHINFER_BLOCK, shape.head_dim)
    query = shape.random(shape.num_requests * shape.query_len, shape.num_heads, shape.head_dim)
    workspace = torch.zeros(_FLASHINFER_WORKSPACE_BYTES, dtype=torch.uint8, device=shape.device)

    def ends(length: int) -> Tensor:
        """[R + 1] int32: where requests of this length begin and end."""
        return torch.arange(shape.num_requests + 1, dtype=torch.int32, device=shape.device) * length

    last_page = (shape.context_len - 1) % _FLASHINFER_BLOCK + 1
    paged = (
        ends(block_table.shape[1]),
        block_table.flatten(),
        torch.full((shape.num_requests,), last_page, dtype=torch.int32, device=shape.device),
        shape.num_heads,
        shape.num_kv_heads,
        shape.head_dim,
        _FLASHINFER_BLOCK,
    )
    if shape.is_prompt:
        wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "HND")
        wrapper.plan(ends(shape.query_len), *paged, causal=True, q_data_type=shape.dtype)
    else:
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "HND", use_tensor_cores=True)
        wrapper.plan(*paged, q_data_type=shape.dtype)
    return lambda: wrapper.run(query, pages)
