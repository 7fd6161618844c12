import dataclasses

import pytest

from minivllm_kvcache import KVCacheStats

STATS = KVCacheStats(unused=3, idle_cached=4, in_use=5, queries=60, hits=16, evictions=1)


def test_unused_and_idle_cached_blocks_can_be_allocated():
    assert STATS.allocatable == 7


def test_a_snapshot_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        STATS.unused = 0
