"""Paged KV-cache block allocator with prefix caching, standard library only."""

from minivllm_kvcache.block_table import BlockTable
from minivllm_kvcache.errors import (
    BlockNotInUse,
    DuplicateRequest,
    InvalidArgument,
    KVCacheError,
    UnknownRequest,
)
from minivllm_kvcache.events import BlockEvent, BlockEventKind
from minivllm_kvcache.hashing import PrefixKeys
from minivllm_kvcache.manager import Allocation, KVCacheManager
from minivllm_kvcache.stats import KVCacheStats

__all__ = [
    "Allocation",
    "BlockEvent",
    "BlockEventKind",
    "BlockNotInUse",
    "BlockTable",
    "DuplicateRequest",
    "InvalidArgument",
    "KVCacheError",
    "KVCacheManager",
    "KVCacheStats",
    "PrefixKeys",
    "UnknownRequest",
]
