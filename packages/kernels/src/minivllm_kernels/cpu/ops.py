"""The C kernels as functions of tensors. All tensors are bfloat16 on the CPU unless said otherwise."""

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from minivllm_kernels.cpu.library import MAX_GROUP_SIZE, MAX_HEAD_DIM, PANEL_COLUMNS
from minivllm_kernels.errors import InvalidTensor


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A weight [N, K] in panels of 32 outputs, pairs of neighbouring inputs side by side.

    Attributes:
        panels: [ceil(N / 32), K / 2, 32, 2].
        bias: [N] float32, or None.
        num_outputs: N.
    """

    panels: Tensor
    bias: Tensor | None
    num_outputs: int


def pack_weight(weight: Tensor, bias: Tensor | None) -> PackedWeight:
    """Lay weight [N, K] out for `CpuOps.linear`.

    Raises:
        InvalidTensor: the weight is not bfloat16, or K is odd.
    """
    num_outputs, num_inputs = weight.shape
    if weight.dtype != torch.bfloat16 or num_inputs % 2:
        raise InvalidTensor(f"weight is {weight.dtype} {tuple(weight.shape)}, expected bfloat16 [N, even K]")
    padded = functional.pad(weight, (0, 0, 0, -num_outputs % PANEL_COLUMNS))
    panels = padded.view(-1, PANEL_COLUMNS, num_inputs // 2, 2).transpose(1, 2).contiguous()
    return PackedWeight(panels, None if bias is None else bias.float(), num_outputs)


class CpuOps:
    """The kernels of a loaded library, on `num_threads` threads of PyTorch's own pool.

    Each raises `InvalidTensor` for a dtype, shape or layout that it does not compute; values such as block ids are
    not looked at.
    """

    def __init__(self, library: ctypes.CDLL, num_threads: int) -> None:
        self._threads = num_threads
        pointer, size, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float

        def bind(name: str, *argument_types: type) -> ctypes._CFuncPtr:  # type: ignore[name-defined]
            function = getattr(library, name)
            function.argtypes, function.restype = (*argument_types, ctypes.c_int), None
            return function

        self._linear = bind("linear", *[pointer] * 4, *[size] * 3)
        self._rms_norm = bind("rms_norm", pointer, size, pointer, number, pointer, *[size] * 3)
        self._add_rms_norm = bind("add_rms_norm", *[pointer] * 3, number, pointer, *[size] * 2)
        self._silu_and_mul = bind("silu_and_mul", *[pointer] * 2, *[size] * 2)
        self._rotate_and_cache = bind("rotate_and_cache", *[pointer] * 6, *[size] * 5)
        self._paged_attention = bind(
            "paged_attention", pointer, size, *[pointer] * 3, size, *[pointer] * 3, *[size] * 5, number
        )

    def linear(self, x: Tensor, weight: PackedWeight) -> Tensor:
        """Product of x [T, K] with weightᵀ (+ bias): [T, N]."""
        num_rows, num_inputs = _rows(x)
        if num_inputs != 2 * weight.panels.shape[1]:
            raise InvalidTensor(f"x has {num_inputs} inputs, the weight has {2 * weight.panels.shape[1]}")
        output = x.new_empty(num_rows, weight.num_outputs)
        bias = None if weight.bias is None else weight.bias.data_ptr()
        self._linear(
            x.data_ptr(), weight.panels.data_ptr(), bias, output.data_ptr(),
            num_rows, num_inputs, weight.num_outputs, self._threads,
        )  # fmt: skip
        return output

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Normalize x [..., H]: x · weight / sqrt(mean(x²) + eps), weight [H] float32."""
        rows = x.reshape(-1, x.shape[-1])
        num_rows, row_size = _rows(rows)
        _require("weight", weight, torch.float32, (row_size,))
        output = torch.empty_like(rows)
        self._rms_norm(
            rows.data_ptr(), row_size, weight.data_ptr(), eps, output.data_ptr(), row_size,
            num_rows, row_size, self._threads,
        )  # fmt: skip
        return output.view(x.shape)

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Add x [T, H] to residual [T, H] in place and return the sum's norm; weight [H] is float32."""
        num_rows, row_size = _rows(x)
        _require("residual", residual, torch.bfloat16, x.shape)
        _require("weight", weight, torch.float32, (row_size,))
        output = torch.empty_like(x)
        self._add_rms_norm(
            x.data_ptr(), residual.data_ptr(), weight.data_ptr(), eps, output.data_ptr(),
            num_rows, row_size, self._threads,
        )  # fmt: skip
        return output

    def silu_and_mul(self, gate_up: Tensor) -> Tensor:
        """silu(first half) · second half: [T, 2I] -> [T, I]."""
        num_rows, row_size = _rows(gate_up)
        if row_size % 2:
            raise InvalidTensor(f"gate_up has {row_size} columns, expected two halves")
        output = gate_up.new_empty(num_rows, row_size // 2)
        self._silu_and_mul(gate_up.data_ptr(), output.data_ptr(), num_rows, row_size // 2, self._threads)
        return output

    def rotate_and_cache(
        self, heads: Tensor, positions: Tensor, cos_sin: Tensor, slot_mapping: Tensor, cache: Tensor
    ) -> None:
        """Rotate the queries in place; rotate the keys and write them and the values to their slots.

        Args:
            heads: [T, Hq + 2·Hkv, D], contiguous; its keys and values stay as they are.
            positions: [T] int64.
            cos_sin: [P, D] float32; cosines of D/2 frequencies, then their sines.
            slot_mapping: [T] int64; block id · block_size + offset.
            cache: [2, blocks, Hkv, block_size, D], keys and values.
        """
        num_tokens, num_heads, num_kv_heads, block_size, head_dim = _heads_and_cache(heads, cache)
        _require("positions", positions, torch.int64, (num_tokens,))
        _require("cos_sin", cos_sin, torch.float32, (len(cos_sin), head_dim))
        _require("slot_mapping", slot_mapping, torch.int64, (num_tokens,))
        keys, values = cache[0].data_ptr(), cache[1].data_ptr()
        self._rotate_and_cache(
            heads.data_ptr(), positions.data_ptr(), cos_sin.data_ptr(), slot_mapping.data_ptr(), keys, values,
            num_tokens, num_heads, num_kv_heads, block_size, head_dim, self._threads,
        )  # fmt: skip

    def paged_attention(
        self,
        heads: Tensor,
        cache: Tensor,
        block_tables: Tensor,
        query_start_loc: Tensor,
        context_lens: Tensor,
        scale: float,
    ) -> Tensor:
        """Attend from the last tokens of R requests to their contexts; see the twin `paged_prefill_attention`.

        Args:
            heads: [T, Hq + 2·Hkv, D], contiguous; its first Hq are the queries.
            cache: [2, blocks, Hkv, block_size, D], keys and values.
            block_tables: [R, M] int32.
            query_start_loc: [R + 1] int32; request r owns tokens query_start_loc[r] up to query_start_loc[r + 1].
            context_lens: [R] int32, tokens in the cache, this step's included.
            scale: Of the scores.

        Returns:
            [T, Hq, D]
        """
        num_tokens, num_heads, num_kv_heads, block_size, head_dim = _heads_and_cache(heads, cache)
        if head_dim > MAX_HEAD_DIM or num_heads > MAX_GROUP_SIZE * num_kv_heads:
            raise InvalidTensor(
                f"heads have head_dim {head_dim} and {num_heads} queries for {num_kv_heads} KV heads, expected "
                f"head_dim up to {MAX_HEAD_DIM} and groups of up to {MAX_GROUP_SIZE}"
            )
        num_requests = len(context_lens)
        if (
            block_tables.dtype is not torch.int32
            or len(block_tables) != num_requests
            or block_tables.stride(1) != 1
        ):
            raise InvalidTensor(
                f"block_tables is {block_tables.dtype} {tuple(block_tables.shape)} {block_tables.stride()}, expected "
                f"int32 rows of {num_requests} requests"
            )
        _require("query_start_loc", query_start_loc, torch.int32, (num_requests + 1,))
        _require("context_lens", context_lens, torch.int32, (num_requests,))
        output = heads.new_empty(num_tokens, num_heads, head_dim)
        self._paged_attention(
            heads.data_ptr(), heads.stride(0), cache[0].data_ptr(), cache[1].data_ptr(),
            block_tables.data_ptr(), block_tables.stride(0), query_start_loc.data_ptr(), context_lens.data_ptr(),
            output.data_ptr(), num_requests, num_heads, num_kv_heads, block_size, head_dim, scale,
            self._threads,
        )  # fmt: skip
        return output


def _rows(x: Tensor) -> tuple[int, int]:
    """Shape of a contiguous bfloat16 matrix."""
    if x.dtype is not torch.bfloat16 or x.ndim != 2 or not x.is_contiguous():
        raise InvalidTensor(
            f"x is {x.dtype} {tuple(x.shape)} {x.stride()}, expected contiguous bfloat16 rows"
        )
    return x.shape[0], x.shape[1]


def _require(name: str, tensor: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    if tensor.dtype is not dtype or tensor.shape != shape or not tensor.is_contiguous():
        raise InvalidTensor(
            f"{name} is {tensor.dtype} {tuple(tensor.shape)} {tensor.stride()}, expected contiguous {dtype} {shape}"
        )


def _heads_and_cache(heads: Tensor, cache: Tensor) -> tuple[int, int, int, int, int]:
    """T, Hq, Hkv, block_size and D of a step's heads and of the cache."""
    num_tokens, num_all_heads, head_dim = heads.shape
    _, num_blocks, num_kv_heads, block_size, _ = cache.shape
    _require("heads", heads, torch.bfloat16, (num_tokens, num_all_heads, head_dim))
    _require("cache", cache, torch.bfloat16, (2, num_blocks, num_kv_heads, block_size, head_dim))
    num_heads = num_all_heads - 2 * num_kv_heads
    if num_heads < 1 or num_heads % num_kv_heads or head_dim % 2:
        raise InvalidTensor(
            f"heads are {num_all_heads} of head_dim {head_dim}, expected a multiple of the cache's {num_kv_heads} "
            "KV heads, more than twice as many, and an even head_dim"
        )
    return num_tokens, num_heads, num_kv_heads, block_size, head_dim
