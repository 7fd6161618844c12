# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Matrix product for the projections of a step with 2 to 64 tokens, and up to 256 where the weight has few rows.

Reading the weight takes the time, so all that counts is how much of it is on its way. A program multiplies 64 rows of
the weight by a tile of tokens. Hopper's copy engine (TMA) moves tiles of both into a ring in shared memory, from where
the tensor cores read them (wgmma); the first tiles of the weight are requested before the kernel in front has ended.
A weight of few rows gives fewer programs than there are multiprocessors: then K is cut as well, and whoever reads the
product adds the parts, at no launch of its own (`add_rms_norm`).

Written in Gluon, Triton's lower level, where a program says itself what is copied when. There is no interpreter for it.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from minivllm_kernels.early_launch import early_launch
from minivllm_kernels.tensor_checks import (
    MAX_SMALL_BATCH,
    require_gate_up_groups,
    require_small_batch,
    require_splits,
)

_TILE_ROWS = 64
"""Rows of the weight in a program: the height of a wgmma."""
_TILE_K = 128
_MAX_TILE_TOKENS = 64
_NUM_WARPS = 4
"""One warpgroup."""
_PROGRAMS_AT_ONCE = 132
"""Multiprocessors of an H200."""
_SHARED_BYTES = 208 * 1024
"""Of the 227 KiB of a multiprocessor."""
_MOST_TILES = 100
"""Of the output, beyond 64 tokens: more keep the tensor cores so busy that cuBLAS is faster."""
_MAX_SPLITS = 4


class SmallBatchPlan(NamedTuple):
    """How a product is dealt out.

    Attributes:
        tile_tokens: Tokens in a program.
        num_stages: Tiles of K in its ring, at most all that it sums.
        tiles_per_split: Tiles of K that a program sums.
    """

    tile_tokens: int
    num_stages: int
    tiles_per_split: int


def max_small_batch(weight: torch.Tensor) -> int:
    """Tokens up to which `small_batch_linear` is the fastest product with `weight` `[N, K]` (`PERFORMANCE.md`).

    0 where it does not run: it needs a GPU of compute capability 9.0, half precision and rows of whole 16 bytes.
    """
    if not (_has_wgmma(weight.device) and weight.dtype in (torch.float16, torch.bfloat16)):
        return 0
    if weight.shape[1] % 8 or weight.data_ptr() % 16:
        return 0
    return most_tokens(weight.shape[0])


def most_tokens(num_rows: int) -> int:
    """Tokens up to which the kernel is faster than cuBLAS, with a weight of N rows."""
    tiles_of_tokens = max(_MOST_TILES // int(triton.cdiv(num_rows, _TILE_ROWS)), 1)
    return min(tiles_of_tokens * _MAX_TILE_TOKENS, MAX_SMALL_BATCH)


@lru_cache
def _has_wgmma(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


def num_k_splits(num_tokens: int, weight: torch.Tensor) -> int:
    """Parts to cut K into so that a product with `weight` `[N, K]` fills the device: 1, 2 or 4."""
    num_rows, row_size = weight.shape
    programs = triton.cdiv(num_rows, _TILE_ROWS) * triton.cdiv(num_tokens, _tile_tokens(num_tokens))
    # Each part has two tiles at least.
    most = min(_MAX_SPLITS, _PROGRAMS_AT_ONCE // max(programs, 1), triton.cdiv(row_size, _TILE_K) // 2)
    return 1 << max(int(most), 1).bit_length() - 1


def small_batch_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *, num_splits: int = 1
) -> torch.Tensor:
    """Multiply a few vectors by a matrix, where `max_small_batch` is above 0.

    Args:
        x: `[T, K]`, T at most `MAX_SMALL_BATCH`, float16 or bfloat16; rows of any stride of whole 16 bytes.
        weight: `[N, K]`, dtype of `x`, contiguous.
        bias: `[N]`, dtype of `x`.
        num_splits: S, at most `MAX_SPLITS`; above 1 K is cut into so many parts, whose products the caller adds.

    Returns:
        `[T, N]`, x · weightᵀ (+ bias), summed in float32 and rounded once to the dtype of `x`; of several parts
        `[S, T, N]` float32, a sum for each, to the first of which `bias` is added.

    Raises:
        InvalidTensor: The shapes, dtypes or layouts do not fit each other, or `x` has too many rows.
    """
    require_small_batch(x, weight, bias)
    require_splits(num_splits)
    num_tokens, num_rows = x.shape[0], weight.shape[0]
    if num_splits == 1:
        output = torch.empty((num_tokens, num_rows), dtype=x.dtype, device=x.device)
    else:
        output = torch.empty((num_splits, num_tokens, num_rows), dtype=torch.float32, device=x.device)
    if num_tokens:
        _multiply(output, x, weight, bias, num_splits, is_gated=False)
    return output


def small_batch_gated_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Multiply a few vectors by a gate and an up projection, and join both: SwiGLU (Shazeer, 2020).

    Args:
        x: `[T, K]`, as of `small_batch_linear`.
        weight: `[2I, K]`, rows of gate and up in turn (`interleave_gate_up`), dtype of `x`, contiguous.
        bias: `[2I]` in the same order, dtype of `x`.

    Returns:
        `[T, I]`, silu(x · gateᵀ) · (x · upᵀ), computed in float32 and rounded once to the dtype of `x`.

    Raises:
        InvalidTensor: The shapes, dtypes or layouts do not fit each other, or `x` has too many rows.
    """
    require_small_batch(x, weight, bias)
    require_gate_up_groups("weight", weight)
    output = torch.empty((x.shape[0], weight.shape[0] // 2), dtype=x.dtype, device=x.device)
    if x.shape[0]:
        _multiply(output, x, weight, bias, 1, is_gated=True)
    return output


def _multiply(
    output: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    num_splits: int,
    *,
    is_gated: bool,
) -> None:
    """Launch the kernel on checked arguments, at least one token."""
    num_tokens, num_rows = x.shape[0], weight.shape[0]
    plan = _plan(num_tokens, weight, num_splits)
    grid = (triton.cdiv(num_rows, _TILE_ROWS), triton.cdiv(num_tokens, plan.tile_tokens), num_splits)
    _small_batch_kernel[grid](
        output,
        _descriptor(weight, _TILE_ROWS),
        _descriptor(x, plan.tile_tokens),
        bias,
        num_tokens,
        num_rows,
        plan.tiles_per_split,
        STAGES=plan.num_stages,
        IS_GATED=is_gated,
        num_warps=_NUM_WARPS,
        **early_launch(x.device),
    )


def _tile_tokens(num_tokens: int) -> int:
    return min(max(int(triton.next_power_of_2(num_tokens)), 16), _MAX_TILE_TOKENS)


def _plan(num_tokens: int, weight: torch.Tensor, num_splits: int) -> SmallBatchPlan:
    num_rows, row_size = weight.shape
    tokens = _tile_tokens(num_tokens)
    programs = triton.cdiv(num_rows, _TILE_ROWS) * triton.cdiv(num_tokens, tokens) * num_splits
    # Two programs share a multiprocessor where there are more of them than that.
    shared_bytes = _SHARED_BYTES if programs <= _PROGRAMS_AT_ONCE else _SHARED_BYTES // 2
    num_stages = shared_bytes // ((_TILE_ROWS + tokens) * _TILE_K * weight.element_size())
    num_tiles = triton.cdiv(triton.cdiv(row_size, _TILE_K), num_splits)
    return SmallBatchPlan(tokens, min(num_stages, num_tiles), num_tiles)


def _descriptor(tensor: torch.Tensor, num_rows: int) -> TensorDescriptor:
    """What the copy engine needs to know to copy tiles of `num_rows` rows, with zeros past the edges."""
    shape = [num_rows, _TILE_K]
    dtype = gl.float16 if tensor.dtype == torch.float16 else gl.bfloat16
    return TensorDescriptor.from_tensor(tensor, shape, gl.NVMMASharedLayout.get_default_for(shape, dtype))


@gluon.jit(do_not_specialize=["num_tokens", "num_tiles"])
def _small_batch_kernel(
    output_ptr,
    weight_desc,
    x_desc,
    bias_ptr,
    num_tokens,
    num_rows,
    num_tiles,
    STAGES: gl.constexpr,
    IS_GATED: gl.constexpr,
    EARLY: gl.constexpr,
):
    """One program sums `num_tiles` tiles of K for a tile of rows and tokens."""
    ROWS: gl.constexpr = weight_desc.block_shape[0]
    TOKENS: gl.constexpr = x_desc.block_shape[0]
    TILE_K: gl.constexpr = x_desc.block_shape[1]
    TILE_BYTES: gl.constexpr = weight_desc.block_type.nbytes + x_desc.block_type.nbytes
    if EARLY:
        gdc_launch_dependents()
    weights = gl.allocate_shared_memory(weight_desc.dtype, [STAGES, ROWS, TILE_K], weight_desc.layout)
    xs = gl.allocate_shared_memory(x_desc.dtype, [STAGES, TOKENS, TILE_K], x_desc.layout)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready.index(stage), count=1)
    split = gl.program_id(2)
    first_row, first_token = gl.program_id(0) * ROWS, gl.program_id(1) * TOKENS
    first_k = split * num_tiles * TILE_K

    for stage in gl.static_range(STAGES):
        mbarrier.expect(ready.index(stage), TILE_BYTES)
        at = [first_row, first_k + stage * TILE_K]
        tma.async_copy_global_to_shared(weight_desc, at, ready.index(stage), weights.index(stage))
    if EARLY:
        gdc_wait()
    for stage in gl.static_range(STAGES):
        at = [first_token, first_k + stage * TILE_K]
        tma.async_copy_global_to_shared(x_desc, at, ready.index(stage), xs.index(stage))

    sums: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[gl.num_warps(), 1], instr_shape=[16, TOKENS, 16]
    )
    product = warpgroup_mma_init(gl.zeros([ROWS, TOKENS], gl.float32, sums))
    for tile in range(num_tiles):
        slot = tile % STAGES
        mbarrier.wait(ready.index(slot), (tile // STAGES) & 1)
        product = warpgroup_mma_wait(num_outstanding=0, deps=(product,))
        # The tile before this one is used up: its place takes one that is still to come.
        following = tile - 1 + STAGES
        refill = (tile > 0) & (following < num_tiles)
        place = following % STAGES
        k = first_k + following * TILE_K
        arrived = ready.index(place)
        mbarrier.expect(arrived, TILE_BYTES, refill)
        tma.async_copy_global_to_shared(weight_desc, [first_row, k], arrived, weights.index(place), refill)
        tma.async_copy_global_to_shared(x_desc, [first_token, k], arrived, xs.index(place), refill)
        product = warpgroup_mma(weights.index(slot), xs.index(slot).permute((1, 0)), product, is_async=True)
    product = warpgroup_mma_wait(num_outstanding=0, deps=(product,))
    for stage in gl.static_range(STAGES):
        mbarrier.invalidate(ready.index(stage))
    _finish(output_ptr, product, bias_ptr, (first_row, first_token, split), (num_tokens, num_rows), IS_GATED)


@gluon.jit
def _finish(output_ptr, product, bias_ptr, origin, size, IS_GATED: gl.constexpr):
    """Add the bias, once, to the first split; gate; write the tile."""
    first_row, first_token, split = origin
    num_tokens, num_rows = size
    if bias_ptr is not None:
        rows = first_row + gl.arange(0, product.shape[0], layout=gl.SliceLayout(1, product.type.layout))
        bias = gl.load(bias_ptr + rows, mask=(rows < num_rows) & (split == 0), other=0.0)
        product += bias.to(gl.float32)[:, None]
    if IS_GATED:
        _store(output_ptr, _gate(product), first_row // 2, first_token, split, num_tokens, num_rows // 2)
    else:
        _store(output_ptr, product, first_row, first_token, split, num_tokens, num_rows)


@gluon.jit
def _gate(product):
    """Join the rows of gate and up: a thread has both, for they are 8 rows apart in what a wgmma leaves it."""
    groups: gl.constexpr = product.shape[0] // 16
    pairs = product.reshape([groups, 2, 8, product.shape[1]]).permute([0, 2, 3, 1])
    gate, up = pairs.split()
    gated = gate / (1.0 + gl.exp(-gate)) * up
    return gated.reshape([groups * 8, product.shape[1]])


@gluon.jit
def _store(output_ptr, product, first_row, first_token, split, num_tokens, num_rows):
    """Write a tile of the product."""
    # 4 rows side by side in a thread, all of the tile in a part of a warp: whole lines of the output, of a gated tile
    # half ones.
    lanes: gl.constexpr = product.shape[0] // 4
    lines: gl.constexpr = gl.BlockedLayout([4, 1], [lanes, 32 // lanes], [1, gl.num_warps()], [0, 1])
    output = gl.convert_layout(product, lines)
    rows = first_row + gl.arange(0, product.shape[0], layout=gl.SliceLayout(1, lines))[:, None]
    tokens = first_token + gl.arange(0, product.shape[1], layout=gl.SliceLayout(0, lines))[None, :]
    output_ptrs = output_ptr + (split * num_tokens + tokens) * num_rows + rows
    mask = (rows < num_rows) & (tokens < num_tokens)
    gl.store(output_ptrs, output.to(output_ptr.dtype.element_ty), mask=mask)
