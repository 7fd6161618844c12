"""Tile shapes of the paged attention kernels: what measured best on an H200 (`PERFORMANCE.md`), for any head shape."""

from typing import NamedTuple

import torch

# The smallest side of tl.dot: fewer query rows, or shorter heads, are padded to it.
MIN_DOT_SIZE = 16


class AttentionConfig(NamedTuple):
    """How a program is shaped.

    Attributes:
        tile_rows: Query rows, tokens times the heads of a group; a power of two.
        tile_kv: Positions of the context read at once; a power of two.
        num_warps, num_stages: Of the launch; stages are tiles in flight.
        max_registers: Of a thread; None leaves the number to the compiler, which knows nothing of the programs that are
            to share a multiprocessor.
    """

    tile_rows: int
    tile_kv: int
    num_warps: int
    num_stages: int
    max_registers: int | None = None


class PrefillTiles(NamedTuple):
    """How the queries of a batch of chunks are dealt out to programs; from `locate_tiles`.

    Attributes:
        requests: `[num_tiles]` int32, the request that each tile belongs to; -1 where nobody needs it.
        tokens: In a tile.
        config: Of each program.
    """

    requests: torch.Tensor
    tokens: int
    config: AttentionConfig


def decode_config(head_dim: int, element_bytes: int, group_size: int) -> AttentionConfig:
    """One token with its group of heads against a stretch of context: bound by reading it."""
    tile_rows = max(_next_power_of_2(group_size), MIN_DOT_SIZE)
    num_warps = 4 if element_bytes > 2 else 2 if head_dim <= 64 else 1
    tile_kv = _kv_tile(head_dim, element_bytes, 8 * 1024)
    # Eight programs of two warps on a multiprocessor: 132 of those hold the 1024 programs of a large batch at once;
    # with six, some would wait for a second turn. More rows need more registers.
    max_registers = 128 if num_warps == 2 and tile_rows == MIN_DOT_SIZE else None
    return AttentionConfig(tile_rows, tile_kv, num_warps, num_stages=3, max_registers=max_registers)


def prefill_config(head_dim: int, element_bytes: int, group_size: int, max_query_len: int) -> AttentionConfig:
    """Many tokens against their context: bound by arithmetic, so that tiles are as large as registers allow."""
    group_rows = _next_power_of_2(group_size)
    if max_query_len * group_rows <= MIN_DOT_SIZE:
        return decode_config(head_dim, element_bytes, group_size)._replace(
            tile_rows=MIN_DOT_SIZE, max_registers=None
        )
    tile_kv = _kv_tile(head_dim, element_bytes, 16 * 1024)
    return AttentionConfig(max(64, group_rows), tile_kv, num_warps=4, num_stages=2)


def head_tile_size(head_dim: int) -> int:
    """Elements of a head in a tile: a power of two that tl.dot takes; those past head_dim are masked."""
    return max(_next_power_of_2(head_dim), MIN_DOT_SIZE)


def _kv_tile(head_dim: int, element_bytes: int, tile_bytes: int) -> int:
    """Positions in a tile of K or V: as many as `tile_bytes` hold, from 16 to 64."""
    return min(max(tile_bytes // (head_tile_size(head_dim) * element_bytes), 16), 64)


def _next_power_of_2(number: int) -> int:
    return 1 << (number - 1).bit_length()
