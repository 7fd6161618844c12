"""All blocks of the KV cache: who is free, how often each is held, and which content each one carries."""

from collections.abc import Iterable, Mapping, Sequence

from minivllm_kvcache.block import Block
from minivllm_kvcache.errors import BlockNotInUse, InvalidArgument
from minivllm_kvcache.events import BlockEvent, BlockEventKind
from minivllm_kvcache.free_queue import FreeBlockQueue


class BlockPool:
    """Reference-counted blocks, a free list that is the eviction order, and the map of cached content.

    A block is in one of three states, and `num_unused + num_idle_cached + num_in_use == num_blocks`
    at every moment:

        unused ──allocate──► in use ──free, no key──► unused
                               │ ▲
                   free, keyed ▼ │ touch (hit)
                            idle cached ──allocate = evict: the key is dropped──► in use

    Args:
        num_blocks: Number of blocks; their ids are 0 … num_blocks - 1, handed out in this order at first.
        record_events: Whether to record changes of the cached content. Someone must then call
            `take_events` regularly: nothing else empties the record.

    Raises:
        InvalidArgument: `num_blocks` is less than 1.
    """

    def __init__(self, num_blocks: int, *, record_events: bool = False) -> None:
        if num_blocks < 1:
            raise InvalidArgument(f"num_blocks is {num_blocks}, it must be at least 1")
        self._blocks = [Block(block_id) for block_id in range(num_blocks)]
        self._free = FreeBlockQueue(self._blocks)
        self._by_key: dict[bytes, Block] = {}
        self._num_idle_cached = 0
        self._num_evictions = 0
        self._record_events = record_events
        self._events: list[BlockEvent] = []

    @property
    def num_blocks(self) -> int:
        """Number of blocks, whatever their state."""
        return len(self._blocks)

    @property
    def num_allocatable(self) -> int:
        """Blocks that `allocate` may take: the unused and the idle cached ones."""
        return len(self._free)

    @property
    def num_idle_cached(self) -> int:
        """Blocks that nobody holds and whose content can still be hit."""
        return self._num_idle_cached

    @property
    def num_unused(self) -> int:
        """Blocks that nobody holds and that carry no known content."""
        return len(self._free) - self._num_idle_cached

    @property
    def num_in_use(self) -> int:
        """Blocks that somebody holds."""
        return len(self._blocks) - len(self._free)

    @property
    def num_evictions(self) -> int:
        """How many cached blocks were taken for other content so far."""
        return self._num_evictions

    def lookup(self, key: bytes) -> int | None:
        """Returns the block that carries the content of `key`, or None. Changes nothing."""
        block = self._by_key.get(key)
        return None if block is None else block.block_id

    def allocate(
        self, num_new: int, *, shared: Sequence[int] = (), reserve: int = 0
    ) -> tuple[int, ...] | None:
        """Takes `num_new` blocks of unknown content and one more reference on each block of `shared`.

        Args:
            num_new: Blocks to take, unused ones first, then the cached ones that were idle longest.
            shared: Blocks that `lookup` returned just now.
            reserve: Blocks that must still be allocatable afterwards.

        Returns:
            The ids of the new blocks, each with one reference; None if there is no room, and then
            nothing has changed.
        """
        num_revived = sum(self._blocks[block_id].ref_count == 0 for block_id in shared)
        if num_new + num_revived + reserve > len(self._free):
            return None
        self.touch(shared)
        return tuple([self._take() for _ in range(num_new)])

    def touch(self, block_ids: Iterable[int]) -> None:
        """Takes one more reference on each block, which must be in use or idle cached."""
        for block_id in block_ids:
            block = self._blocks[block_id]
            if block.ref_count == 0:
                self._free.remove(block)
                self._num_idle_cached -= 1
            block.ref_count += 1

    def register(self, block_id: int, key: bytes) -> bool:
        """Makes the content of a block in use available under `key`.

        Returns:
            Whether the block is now the one that `key` names. The first writer wins: False if another
            block carries the same content, and then nothing has changed.
        """
        if key in self._by_key:
            return False
        block = self._blocks[block_id]
        block.block_hash = key
        self._by_key[key] = block
        self._record(BlockEventKind.STORED, key, block_id)
        return True

    def free(self, block_ids: Iterable[int]) -> None:
        """Gives back one reference on each block, in the order given.

        A block that nobody holds any more goes to the front of the free list if it has no key, since
        it is worth nothing, else to the back. Within one call, earlier blocks are evicted earlier.

        Raises:
            BlockNotInUse: A block has no references; those before it in the order have been freed.
        """
        for block_id in block_ids:
            block = self._blocks[block_id]
            if block.ref_count == 0:
                raise BlockNotInUse(block_id)
            block.ref_count -= 1
            if block.ref_count > 0:
                continue
            if block.block_hash is None:
                self._free.appendleft(block)
            else:
                self._free.append(block)
                self._num_idle_cached += 1

    def num_exclusive(self, block_ids: Iterable[int]) -> int:
        """Returns how many of the blocks have one reference."""
        return sum(self._blocks[block_id].ref_count == 1 for block_id in block_ids)

    def take_events(self) -> tuple[BlockEvent, ...]:
        """Returns the changes of the cached content since the last call, oldest first."""
        events = tuple(self._events)
        self._events.clear()
        return events

    def check_invariants(self) -> None:
        """Asserts that free list, reference counts, keys and counters agree. O(num_blocks), for tests."""
        free = list(self._free)
        assert len(free) == len(self._free), f"{len(free)} blocks linked, {len(self._free)} counted"
        assert {b.block_id for b in free} == {b.block_id for b in self._blocks if b.ref_count == 0}
        assert [b.prev_free for b in free] == [None, *free[:-1]][: len(free)], (
            "links do not mirror each other"
        )
        assert all(b.prev_free is b.next_free is None for b in self._blocks if b.ref_count > 0)
        assert all(b.ref_count >= 0 for b in self._blocks)
        keyed = {b.block_hash: b for b in self._blocks if b.block_hash is not None}
        assert keyed == self._by_key, "the map and the blocks name different keys"
        assert len(keyed) == sum(b.block_hash is not None for b in self._blocks), "two blocks share a key"
        assert all(b.ref_count <= 1 for b in self._blocks if b.block_hash is None), (
            "unkeyed blocks are not shared"
        )
        idle = [b.block_hash is not None for b in free]
        assert sum(idle) == self._num_idle_cached, f"{sum(idle)} idle cached, {self._num_idle_cached} counted"
        assert idle == sorted(idle), "an unused block waits behind a cached one"
        assert self.num_unused + self.num_idle_cached + self.num_in_use == self.num_blocks

    def check_references(self, references: Mapping[int, int]) -> None:
        """Asserts that the blocks are held exactly as often as `references` (block id → count) says."""
        held = {block.block_id: block.ref_count for block in self._blocks if block.ref_count > 0}
        assert held == dict(references), f"held {held}, in tables {dict(references)}"

    def _take(self) -> int:
        """Takes the block at the front of the free list, which must not be empty."""
        block = self._free.popleft()
        if block.block_hash is not None:
            self._evict(block)
        block.ref_count = 1
        return block.block_id

    def _evict(self, block: Block) -> None:
        """Forgets the content of `block`, so that no later lookup finds what will be overwritten."""
        key = block.block_hash
        assert key is not None
        del self._by_key[key]
        block.block_hash = None
        self._num_idle_cached -= 1
        self._num_evictions += 1
        self._record(BlockEventKind.REMOVED, key, block.block_id)

    def _record(self, kind: BlockEventKind, key: bytes, block_id: int) -> None:
        if self._record_events:
            self._events.append(BlockEvent(kind, key, block_id))
