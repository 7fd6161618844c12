# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Sampling: an id for each row of logits, and where the next step finds it.

Nothing is sorted and no probability is stored. A threshold stands for top-k, top-p and min-p together; it is found by
bisection over the values that logits can have, of which half precision has 2^16. Then tiles of the vocabulary are
summed side by side, and the draw falls into one tile, which alone is read again.
"""

import torch
import triton
import triton.language as tl

from minivllm_kernels.early_launch import early_launch, let_next_start, wait_for_inputs
from minivllm_kernels.sampling_table import SamplingTable
from minivllm_kernels.tensor_checks import require_sample

_TILE_IDS = 4096
_SEARCH_TILE_IDS = 16384


def sample(
    logits: torch.Tensor,
    token_ids: torch.Tensor,
    slots: torch.Tensor,
    positions: torch.Tensor,
    table: SamplingTable,
) -> torch.Tensor:
    """Sample an id from each of R rows, and write it to the requests' known ids.

    Order: temperature, top-k, top-p on what is left, min-p, draw. Ids tied at a threshold are all kept. The drawn id is
    the first at which the cumulative probability of those kept exceeds u times its total; u is Philox4x32-10 of the
    request's seed, its choice and the index of the output token.

    Args:
        logits: `[R, V]`, rows of any stride.
        token_ids: `[S, L]` int64, written at `[slots, positions]`.
        slots: `[R]` int64, a row of `token_ids` and of `table` each.
        positions: `[R]` int64 or int32, at least the length of the prompt in rows that draw.
        table: Of S slots.

    Returns:
        `[R]` int64; of several largest logits a greedy row takes the first, of NaN any row takes any id.

    Raises:
        InvalidTensor: The shapes, dtypes or layouts do not fit each other.
    """
    require_sample(logits, token_ids, slots, positions, table)
    num_rows, vocab_size = logits.shape
    num_tiles = triton.cdiv(vocab_size, _TILE_IDS)
    threshold = torch.empty(num_rows, dtype=torch.float32, device=logits.device)
    tile_sums = torch.empty((2, num_rows, num_tiles), dtype=torch.float32, device=logits.device)
    sampled = torch.empty(num_rows, dtype=torch.int64, device=logits.device)
    row = (logits, logits.stride(0), vocab_size, slots, table.floats)
    options = early_launch(logits.device)
    _threshold_kernel[(num_rows,)](
        threshold, table.integers, *row, TILE_IDS=_SEARCH_TILE_IDS, num_warps=16, **options
    )
    _sum_tiles_kernel[(num_rows, num_tiles)](tile_sums, threshold, *row, TILE_IDS=_TILE_IDS, **options)
    _draw_kernel[(num_rows,)](
        sampled,
        token_ids,
        token_ids.stride(0),
        positions,
        table.integers,
        tile_sums,
        threshold,
        *row,
        NUM_TILES=num_tiles,
        TILE_IDS=_TILE_IDS,
        num_warps=8,
        **options,
    )
    return sampled


@triton.jit(do_not_specialize_on_alignment=["slots_ptr"])
def _threshold_kernel(
    threshold_ptr,
    integers_ptr,
    logits_ptr,
    stride_logits,
    vocab_size,
    slots_ptr,
    floats_ptr,
    TILE_IDS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One program finds what the logits of one row must reach; -inf if the request sets no limit."""
    row = tl.program_id(0).to(tl.int64)
    let_next_start(EARLY)
    wait_for_inputs(EARLY)
    slot = tl.load(slots_ptr + row)
    temperature, top_p, min_p = _floats(floats_ptr, slot)
    top_k = tl.load(integers_ptr + slot * 4)
    limits_top_k = (top_k > 0) & (top_k < vocab_size)
    threshold = float("-inf")
    if (temperature > 0) & (limits_top_k | (top_p < 1) | (min_p > 0)):
        row_ptr = logits_ptr + row * stride_logits
        lowest, highest = _extremes(row_ptr, vocab_size, TILE_IDS)
        key = lowest
        if limits_top_k:
            key = _top_k_key(row_ptr, vocab_size, top_k, lowest, highest, TILE_IDS)
        if top_p < 1:
            key = _top_p_key(row_ptr, vocab_size, top_p, temperature, key, highest, TILE_IDS)
        threshold = _from_key(key, row_ptr).to(tl.float32)
        if min_p > 0:
            # p >= min_p · p_max, written with logits.
            largest = _from_key(highest, row_ptr).to(tl.float32)
            threshold = tl.maximum(threshold, largest + temperature * tl.log(min_p))
    tl.store(threshold_ptr + row, threshold)


@triton.jit
def _floats(floats_ptr, slot):
    """Temperature, top_p and min_p of a request."""
    floats_ptr += slot * 3
    return tl.load(floats_ptr), tl.load(floats_ptr + 1), tl.load(floats_ptr + 2)


@triton.jit
def _extremes(row_ptr, vocab_size, TILE_IDS: tl.constexpr):
    """The smallest and the largest key of a row."""
    lowest = tl.full((TILE_IDS,), 2**31 - 1, tl.int32)
    highest = tl.full((TILE_IDS,), -(2**31), tl.int32)
    for first in range(0, vocab_size, TILE_IDS):
        ids = first + tl.arange(0, TILE_IDS)
        keys = _to_key(tl.load(row_ptr + ids, mask=ids < vocab_size, other=float("-inf")))
        lowest = tl.minimum(lowest, keys)
        highest = tl.maximum(highest, keys)
    return tl.min(lowest), tl.max(highest)


@triton.jit
def _top_k_key(row_ptr, vocab_size, top_k, lowest, highest, TILE_IDS: tl.constexpr):
    """The largest key that at least top_k keys of a row reach: the top_k-th largest."""
    while lowest < highest:
        middle = (lowest | highest) - ((lowest ^ highest) >> 1)  # rounded up; a sum could overflow
        reaching = tl.zeros((TILE_IDS,), tl.int32)
        for first in range(0, vocab_size, TILE_IDS):
            ids = first + tl.arange(0, TILE_IDS)
            keys = _to_key(tl.load(row_ptr + ids, mask=ids < vocab_size, other=float("-inf")))
            reaching += ((keys >= middle) & (ids < vocab_size)).to(tl.int32)
        if tl.sum(reaching) >= top_k:
            lowest = middle
        else:
            highest = middle - 1
    return lowest


@triton.jit
def _top_p_key(row_ptr, vocab_size, top_p, temperature, lowest, highest, TILE_IDS: tl.constexpr):
    """The smallest key above which, of all from `lowest` on, less than top_p of the probability lies."""
    largest = _from_key(highest, row_ptr).to(tl.float32)
    wanted = top_p * _mass_above(row_ptr, vocab_size, temperature, largest, lowest - 1, TILE_IDS)
    # What is below this weighs less, all together, than what top_p leaves out.
    negligible = largest + temperature * tl.log((1 - top_p) / vocab_size)
    negligible_key = _to_key(negligible.to(row_ptr.dtype.element_ty)) - 1
    lowest = tl.minimum(tl.maximum(lowest, negligible_key), highest)
    while lowest < highest:
        middle = (lowest & highest) + ((lowest ^ highest) >> 1)  # rounded down; a sum could overflow
        if _mass_above(row_ptr, vocab_size, temperature, largest, middle, TILE_IDS) < wanted:
            highest = middle
        else:
            lowest = middle + 1
    return lowest


@triton.jit
def _mass_above(row_ptr, vocab_size, temperature, largest, key, TILE_IDS: tl.constexpr):
    """Sum of exp((logit - largest) / temperature) over the logits of a row whose key is above `key`."""
    mass = tl.zeros((TILE_IDS,), tl.float32)
    for first in range(0, vocab_size, TILE_IDS):
        ids = first + tl.arange(0, TILE_IDS)
        logits = tl.load(row_ptr + ids, mask=ids < vocab_size, other=float("-inf"))
        weights = _weights(logits.to(tl.float32), largest, temperature)
        mass += tl.where(_to_key(logits) > key, weights, 0.0)
    return tl.sum(mass)


@triton.jit
def _to_key(logits):
    """Integers in the order of the logits."""
    if logits.dtype.primitive_bitwidth == 16:
        bits = logits.to(tl.int16, bitcast=True)
        keys = (bits ^ ((bits >> 15) & 0x7FFF)).to(tl.int32)
    else:
        bits = logits.to(tl.int32, bitcast=True)
        keys = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return keys


@triton.jit
def _from_key(key, row_ptr):
    """The logit of a key, in the dtype of the logits of the row."""
    if row_ptr.dtype.element_ty.primitive_bitwidth == 16:
        bits = key.to(tl.int16)
        logit = (bits ^ ((bits >> 15) & 0x7FFF)).to(row_ptr.dtype.element_ty, bitcast=True)
    else:
        logit = (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
    return logit


@triton.jit(do_not_specialize_on_alignment=["slots_ptr"])
def _sum_tiles_kernel(
    tile_sums_ptr,
    threshold_ptr,
    logits_ptr,
    stride_logits,
    vocab_size,
    slots_ptr,
    floats_ptr,
    TILE_IDS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One program finds the largest logit of a tile of one row, and the weight of those kept relative to it."""
    row, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    let_next_start(EARLY)
    wait_for_inputs(EARLY)
    temperature, _, _ = _floats(floats_ptr, tl.load(slots_ptr + row))
    logits = _load_tile(logits_ptr + row * stride_logits, tile, vocab_size, TILE_IDS)
    largest = tl.max(logits, axis=0)
    weights = _weights(logits, largest, temperature)
    total = tl.sum(tl.where(logits >= tl.load(threshold_ptr + row), weights, 0.0), axis=0)
    target = row * tl.num_programs(1) + tile
    tl.store(tile_sums_ptr + target, largest)
    tl.store(tile_sums_ptr + tl.num_programs(0) * tl.num_programs(1) + target, total)


@triton.jit
def _load_tile(row_ptr, tile, vocab_size, TILE_IDS: tl.constexpr):
    """A tile of a row's logits in float32, -inf past the end."""
    ids = tile * TILE_IDS + tl.arange(0, TILE_IDS)
    return tl.load(row_ptr + ids, mask=ids < vocab_size, other=float("-inf")).to(tl.float32)


@triton.jit
def _weights(logits, largest, temperature):
    """Probabilities relative to that of the largest logit, at most 1; a greedy row's mean nothing."""
    # From -inf nothing can be subtracted, and by 0 nothing divided.
    shifted = logits - tl.where(largest > float("-inf"), largest, 0.0)
    return tl.exp(shifted / tl.where(temperature > 0, temperature, 1.0))


@triton.jit(do_not_specialize_on_alignment=["slots_ptr", "positions_ptr"])
def _draw_kernel(
    sampled_ptr,
    token_ids_ptr,
    stride_token_ids,
    positions_ptr,
    integers_ptr,
    tile_sums_ptr,
    threshold_ptr,
    logits_ptr,
    stride_logits,
    vocab_size,
    slots_ptr,
    floats_ptr,
    NUM_TILES: tl.constexpr,
    TILE_IDS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """One program picks a tile of one row, then an id in it, and records the id."""
    row = tl.program_id(0).to(tl.int64)
    tiles = tl.arange(0, triton.next_power_of_2(NUM_TILES))
    tile_sums_ptr += row * NUM_TILES + tiles
    let_next_start(EARLY)
    wait_for_inputs(EARLY)
    slot = tl.load(slots_ptr + row)
    position = tl.load(positions_ptr + row)
    temperature, _, _ = _floats(floats_ptr, slot)
    row_ptr = logits_ptr + row * stride_logits
    tile_max = tl.load(tile_sums_ptr, mask=tiles < NUM_TILES, other=float("-inf"))
    largest, tile = tl.max(tile_max, axis=0, return_indices=True)
    if temperature > 0:
        totals = tl.load(tile_sums_ptr + tl.num_programs(0) * NUM_TILES, mask=tiles < NUM_TILES, other=0.0)
        masses = totals.to(tl.float64) * _weights(tile_max, largest, temperature)
        cumulative = tl.cumsum(masses, axis=0)
        target = _uniform(integers_ptr + slot * 4, position) * tl.max(cumulative, axis=0)
        tile = tl.sum((cumulative <= target).to(tl.int32), axis=0)
        before = tl.sum(tl.where(tiles == tile - 1, cumulative, 0.0), axis=0)
        logits = _load_tile(row_ptr, tile, vocab_size, TILE_IDS)
        weights = _weights(logits, largest, temperature)
        weights = tl.where(logits >= tl.load(threshold_ptr + row), weights, 0.0)
        passed = before + tl.cumsum(weights.to(tl.float64), axis=0) <= target
        # The tile was summed in another order: rounding must not lead past its last id that has a weight.
        last = tl.max(tl.where(weights > 0, tl.arange(0, TILE_IDS), 0), axis=0)
        index = tl.minimum(tl.sum(passed.to(tl.int32), axis=0), last)
    else:
        logits = _load_tile(row_ptr, tile, vocab_size, TILE_IDS)
        _, index = tl.max(logits, axis=0, return_indices=True)
    # Of NaN any id comes out: it must be one that exists.
    sampled = tl.minimum(tile * TILE_IDS + index, vocab_size - 1).to(tl.int64)
    tl.store(sampled_ptr + row, sampled)
    tl.store(token_ids_ptr + slot * stride_token_ids + position, sampled)


@triton.jit
def _uniform(integers_ptr, position):
    """The number in [0, 1) that belongs to seed, choice and index of the output token: a multiple of 2^-32."""
    seed, choice = tl.load(integers_ptr + 1), tl.load(integers_ptr + 2)
    index = position - tl.load(integers_ptr + 3)
    zero = index.to(tl.int32) * 0
    word, _, _, _ = tl.philox(seed, choice.to(tl.int32), index.to(tl.int32), zero, zero)
    return word.to(tl.uint32, bitcast=True).to(tl.float64) * 2.0**-32
