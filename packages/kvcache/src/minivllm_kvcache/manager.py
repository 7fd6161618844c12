"""The package's front door: which blocks each request holds, and which of them it need not compute."""

from collections import Counter
from typing import NamedTuple

from minivllm_kvcache.block_pool import BlockPool
from minivllm_kvcache.block_table import BlockTable
from minivllm_kvcache.errors import DuplicateRequest, InvalidArgument, UnknownRequest
from minivllm_kvcache.events import BlockEvent
from minivllm_kvcache.hashing import PrefixKeys
from minivllm_kvcache.stats import KVCacheStats


class Allocation(NamedTuple):
    """What a request got.

    Attributes:
        block_ids: Its whole block table: the hit blocks, then the new ones.
        num_cached_tokens: Tokens whose keys and values are already in the first blocks; a multiple of
            the block size.
    """

    block_ids: tuple[int, ...]
    num_cached_tokens: int


class _Holding:
    """What the manager keeps per request: its table, and how far the prefix cache has been told of it."""

    __slots__ = ("num_committed_tokens", "table")

    def __init__(self, table: BlockTable, num_committed_tokens: int) -> None:
        self.table = table
        self.num_committed_tokens = num_committed_tokens


class KVCacheManager:
    """Block tables of all requests over one pool, with sharing of equal prefixes.

    The life of a request: `allocate`, then `grow` before each step that needs more positions and
    `commit` after each step whose result is known, then `free`. A preempted request is freed and
    later allocated again with the same `PrefixKeys`.

    Not a thread-safe object: its owner calls it from one thread.

    Args:
        num_blocks: Usable blocks.
        block_size: Tokens per block.
        prefix_caching: False turns hits off; every block is then unused when freed, and nothing is hashed.
        record_events: Whether `take_events` has something to say; someone must then call it regularly.

    Raises:
        InvalidArgument: `num_blocks` or `block_size` is less than 1.
    """

    def __init__(
        self, num_blocks: int, block_size: int, *, prefix_caching: bool = True, record_events: bool = False
    ) -> None:
        if block_size < 1:
            raise InvalidArgument(f"block_size is {block_size}, it must be at least 1")
        self._pool = BlockPool(num_blocks, record_events=record_events)
        self._block_size = block_size
        self._prefix_caching = prefix_caching
        self._holdings: dict[str, _Holding] = {}
        self._num_queries = 0
        self._num_hits = 0

    @property
    def num_blocks(self) -> int:
        """Usable blocks."""
        return self._pool.num_blocks

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self._block_size

    @property
    def prefix_caching(self) -> bool:
        """Whether equal prefixes share blocks."""
        return self._prefix_caching

    @property
    def num_allocatable(self) -> int:
        """Blocks that may be taken now: the unused and the idle cached ones."""
        return self._pool.num_allocatable

    def match(self, keys: PrefixKeys) -> int:
        """Returns how many leading tokens an allocation would find in the cache. Changes nothing.

        The hit covers whole blocks, and at most all known ids but one: the last one must be computed,
        since its logits are needed and are not cached.

        Raises:
            InvalidArgument: `keys` has another block size.
        """
        return len(self._hit_blocks(keys)) * self._block_size

    def allocate(
        self, request_id: str, keys: PrefixKeys, num_new: int, *, use_cache: bool = True, reserve: int = 0
    ) -> Allocation | None:
        """Gives a request its first blocks: those its prefix hits, and room for `num_new` tokens after them.

        Args:
            request_id: A request that holds no blocks.
            keys: Its known ids.
            num_new: Tokens to make room for after the hit, known already or not.
            use_cache: False ignores the prefix cache for this request; its blocks can still be
                committed for others.
            reserve: Blocks that must still be allocatable afterwards.

        Returns:
            The allocation, or None if there is no room now; then nothing has changed.

        Raises:
            DuplicateRequest: The request holds blocks.
            InvalidArgument: `num_new` or `reserve` is negative, or `keys` has another block size.
        """
        if request_id in self._holdings:
            raise DuplicateRequest(request_id, len(self._holdings[request_id].table))
        if num_new < 0 or reserve < 0:
            raise InvalidArgument(f"num_new is {num_new} and reserve {reserve}, neither may be less than 0")
        hits = self._hit_blocks(keys) if use_cache else []
        new = self._pool.allocate(self._num_blocks_for(num_new), shared=hits, reserve=reserve)
        if new is None:
            return None
        num_cached_tokens = len(hits) * self._block_size
        if use_cache and self._prefix_caching:
            self._num_queries += keys.num_tokens
            self._num_hits += num_cached_tokens
        table = BlockTable(self._block_size, (*hits, *new))
        self._holdings[request_id] = _Holding(table, num_cached_tokens)
        return Allocation(table.block_ids, num_cached_tokens)

    def grow(self, request_id: str, num_tokens: int) -> tuple[int, ...] | None:
        """Makes the table cover the request's first `num_tokens` positions in total, not that many more.

        Returns:
            The blocks added at the end of the table: () if it covers them already, None if there is no
            room now; then nothing has changed.

        Raises:
            UnknownRequest: The request holds no blocks.
        """
        table = self._holding(request_id).table
        if num_tokens <= table.capacity_tokens:
            return ()
        new = self._pool.allocate(self._num_blocks_for(num_tokens) - len(table))
        if new is not None:
            table.extend(new)
        return new

    def commit(self, request_id: str, keys: PrefixKeys, num_written: int) -> None:
        """Offers the full blocks among the request's first `num_written` tokens to other requests.

        Call it only when the steps that wrote those tokens have been updated: from here on others read
        the blocks. Tokens written before the request was preempted do not count towards `num_written`
        once it is allocated again. The first writer of a content wins; a later copy stays private.

        Args:
            request_id: The request that wrote.
            keys: Its known ids, the same object or equal to what it was allocated with.
            num_written: Leading tokens whose keys and values are in the request's blocks, hits included.

        Raises:
            UnknownRequest: The request holds no blocks.
            InvalidArgument: The blocks to offer are not covered by the table or not filled by known
                ids, or `keys` has another block size; nothing has changed.
        """
        holding = self._holding(request_id)
        num_committed = holding.num_committed_tokens
        if num_written - num_committed < self._block_size or not self._prefix_caching:
            return
        self._check_block_size(keys)
        if num_written > holding.table.capacity_tokens or num_written > keys.num_tokens:
            raise InvalidArgument(
                f"num_written is {num_written}: the table of {request_id!r} covers "
                f"{holding.table.capacity_tokens} tokens and {keys.num_tokens} ids are known"
            )
        first, num_full = num_committed // self._block_size, num_written // self._block_size
        # Every key exists, or this raises, before the first block is offered.
        new_keys = [keys.key(index) for index in range(first, num_full)]
        for index, key in enumerate(new_keys, first):
            self._pool.register(holding.table[index], key)
        holding.num_committed_tokens = num_full * self._block_size

    def free(self, request_id: str) -> None:
        """Takes all blocks back. The last ones go first, so that of what stays cached prefixes live longest.

        Raises:
            UnknownRequest: The request holds no blocks, for example because it was freed already.
        """
        table = self._holding(request_id).table
        del self._holdings[request_id]
        self._pool.free(reversed(table.block_ids))

    def block_ids(self, request_id: str) -> tuple[int, ...]:
        """Returns the request's block table.

        Raises:
            UnknownRequest: The request holds no blocks.
        """
        return self._holding(request_id).table.block_ids

    def num_exclusive_blocks(self, request_id: str) -> int:
        """Returns how many blocks only this request holds: those that freeing it would make allocatable.

        Raises:
            UnknownRequest: The request holds no blocks.
        """
        return self._pool.num_exclusive(self._holding(request_id).table.block_ids)

    def take_events(self) -> tuple[BlockEvent, ...]:
        """Returns the changes of the cached content since the last call, oldest first; () unless recorded."""
        return self._pool.take_events()

    def stats(self) -> KVCacheStats:
        """Returns the state of the pool and the counters since construction."""
        return KVCacheStats(
            unused=self._pool.num_unused,
            idle_cached=self._pool.num_idle_cached,
            in_use=self._pool.num_in_use,
            queries=self._num_queries,
            hits=self._num_hits,
            evictions=self._pool.num_evictions,
        )

    def check_invariants(self) -> None:
        """Asserts that tables, reference counts and keys agree. O(num_blocks), for tests and idle moments."""
        self._pool.check_invariants()
        references: Counter[int] = Counter()
        for request_id, holding in self._holdings.items():
            block_ids = holding.table.block_ids
            assert len(set(block_ids)) == len(block_ids), f"{request_id!r} holds a block twice: {block_ids}"
            assert holding.num_committed_tokens % self._block_size == 0
            assert holding.num_committed_tokens <= holding.table.capacity_tokens
            references.update(block_ids)
        self._pool.check_references(references)

    def _holding(self, request_id: str) -> _Holding:
        try:
            return self._holdings[request_id]
        except KeyError:
            raise UnknownRequest(request_id) from None

    def _num_blocks_for(self, num_tokens: int) -> int:
        """Returns ceil(num_tokens / block_size)."""
        return -(-num_tokens // self._block_size)

    def _hit_blocks(self, keys: PrefixKeys) -> list[int]:
        """Returns the cached blocks of the longest prefix that leaves at least one known id to compute."""
        self._check_block_size(keys)
        hits: list[int] = []
        if not self._prefix_caching:
            return hits
        for index in range((keys.num_tokens - 1) // self._block_size):
            block_id = self._pool.lookup(keys.key(index))
            if block_id is None:
                break
            hits.append(block_id)
        return hits

    def _check_block_size(self, keys: PrefixKeys) -> None:
        if keys.block_size != self._block_size:
            raise InvalidArgument(f"keys of block size {keys.block_size} in a cache of {self._block_size}")
