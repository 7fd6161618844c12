"""A snapshot of the cache for metrics."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCacheStats:
    """State of the pool and counters since construction.

    Attributes:
        unused: Blocks that hold nothing.
        idle_cached: Blocks that no request holds but the prefix cache still knows.
        in_use: Blocks held by at least one request.
        queries: Tokens looked up in the prefix cache by successful allocations.
        hits: Tokens of those that were found.
        evictions: Blocks whose key was dropped because they were taken for other content.
    """

    unused: int
    idle_cached: int
    in_use: int
    queries: int
    hits: int
    evictions: int

    @property
    def allocatable(self) -> int:
        """Blocks that an allocation may take."""
        return self.unused + self.idle_cached
