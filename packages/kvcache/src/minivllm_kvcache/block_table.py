"""From positions of one request to slots of the KV tensors."""

from collections.abc import Iterable

from minivllm_kvcache.errors import InvalidArgument


class BlockTable:
    """Append-only list of the blocks that hold one request's keys and values.

    Entry i holds positions [i · block_size, (i + 1) · block_size). An entry never changes while the
    request runs, so whoever copied a table only ever has to append to its copy.

        positions   0 1 2 3 │ 4 5 6 7 │ 8 9 · ·        block_size 4
        block ids      7    │    2    │    5
        slots      28 … 31  │ 8 … 11  │ 20 21

    Args:
        block_size: Tokens per block.
        block_ids: First entries.

    Attributes:
        capacity_tokens: Number of positions the table covers; not for callers to set. An attribute and
            not a property because each request's is read in each step.
    """

    __slots__ = ("_block_ids", "_block_size", "capacity_tokens")

    def __init__(self, block_size: int, block_ids: Iterable[int] = ()) -> None:
        self._block_size = block_size
        self._block_ids = list(block_ids)
        self.capacity_tokens = len(self._block_ids) * block_size

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self._block_ids)

    def __getitem__(self, index: int) -> int:
        """The block that holds positions [index · block_size, (index + 1) · block_size)."""
        return self._block_ids[index]

    @property
    def block_ids(self) -> tuple[int, ...]:
        """The blocks in order of position."""
        return tuple(self._block_ids)

    def extend(self, block_ids: Iterable[int]) -> None:
        """Adds blocks at the end."""
        self._block_ids.extend(block_ids)
        self.capacity_tokens = len(self._block_ids) * self._block_size

    def slot(self, position: int) -> int:
        """Returns the slot of `position`: block id · block_size + offset in the block.

        Raises:
            InvalidArgument: The table does not cover `position`.
        """
        if not 0 <= position < self.capacity_tokens:
            raise InvalidArgument(f"position {position} is outside the {self.capacity_tokens} covered ones")
        index, offset = divmod(position, self._block_size)
        return self._block_ids[index] * self._block_size + offset
