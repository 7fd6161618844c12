"""The free list, which is also the eviction order: blocks at the front are reused first."""

from collections.abc import Iterable, Iterator

from minivllm_kvcache.block import Block


class FreeBlockQueue:
    """Doubly linked list of blocks whose links live in the blocks themselves.

    A prefix-cache hit takes a block out of the middle, which a `deque` cannot do in constant time and
    a list of separate nodes would pay for with a second object per block. Every method but iteration
    is O(1).

        front                                            back
        unused, unused, … | least recently freed … most recently freed
        ── reused first ─►|◄──── idle cached: evicted from left to right ──

    The queue does not know whether a block is in it: the owner may append only blocks that are out
    and remove only blocks that are in.
    """

    __slots__ = ("_back", "_front", "_num_blocks")

    def __init__(self, blocks: Iterable[Block] = ()) -> None:
        self._front: Block | None = None
        self._back: Block | None = None
        self._num_blocks = 0
        for block in blocks:
            self.append(block)

    def __len__(self) -> int:
        return self._num_blocks

    def __iter__(self) -> Iterator[Block]:
        """Yields the blocks from front to back."""
        block = self._front
        while block is not None:
            yield block
            block = block.next_free

    def append(self, block: Block) -> None:
        """Adds `block` at the back: reused last."""
        back = self._back
        block.prev_free = back
        if back is None:
            self._front = block
        else:
            back.next_free = block
        self._back = block
        self._num_blocks += 1

    def appendleft(self, block: Block) -> None:
        """Adds `block` at the front: reused first."""
        front = self._front
        block.next_free = front
        if front is None:
            self._back = block
        else:
            front.prev_free = block
        self._front = block
        self._num_blocks += 1

    def popleft(self) -> Block:
        """Takes the block at the front.

        Raises:
            IndexError: The queue is empty.
        """
        block = self._front
        if block is None:
            raise IndexError("pop from an empty FreeBlockQueue")
        self.remove(block)
        return block

    def remove(self, block: Block) -> None:
        """Takes `block`, which must be in this queue, out of it."""
        before, after = block.prev_free, block.next_free
        if before is None:
            self._front = after
        else:
            before.next_free = after
        if after is None:
            self._back = before
        else:
            after.prev_free = before
        block.prev_free = block.next_free = None
        self._num_blocks -= 1
