import pytest

from minivllm_kvcache import BlockEvent, BlockEventKind, BlockNotInUse, InvalidArgument
from minivllm_kvcache.block_pool import BlockPool

A, B, C = (bytes([i]) * 32 for i in range(3))


def counts(pool: BlockPool) -> tuple[int, int, int]:
    pool.check_invariants()
    assert pool.num_allocatable == pool.num_unused + pool.num_idle_cached
    return pool.num_unused, pool.num_idle_cached, pool.num_in_use


def test_blocks_pass_through_the_three_states():
    pool = BlockPool(4)
    assert counts(pool) == (4, 0, 0)
    assert pool.allocate(2) == (0, 1)
    assert counts(pool) == (2, 0, 2)
    assert pool.register(0, A)
    pool.free([1, 0])
    assert counts(pool) == (3, 1, 0)
    pool.touch([0])
    assert counts(pool) == (3, 0, 1)


def test_freed_blocks_without_a_key_are_reused_before_any_other():
    pool = BlockPool(4)
    pool.allocate(2)
    pool.free([0])
    assert pool.allocate(2) == (0, 2)


def test_cached_blocks_are_reused_last_and_the_longest_idle_one_first():
    pool = BlockPool(4)
    pool.allocate(3)
    for block_id, key in enumerate((A, B, C)):
        pool.register(block_id, key)
    pool.free([1, 2, 0])
    assert pool.allocate(3) == (3, 1, 2)
    assert (pool.lookup(A), pool.lookup(B), pool.lookup(C)) == (0, None, None)
    assert pool.num_evictions == 2
    assert counts(pool) == (0, 1, 3)


def test_no_room_changes_nothing():
    pool = BlockPool(3)
    pool.allocate(1)
    pool.register(0, A)
    pool.free([0])
    before = counts(pool)
    assert pool.allocate(4) is None
    assert pool.allocate(3, shared=[0]) is None
    assert pool.allocate(2, reserve=2) is None
    assert counts(pool) == before
    assert pool.lookup(A) == 0
    assert pool.allocate(2, shared=[0]) == (1, 2)


def test_a_shared_block_that_somebody_holds_takes_no_room():
    pool = BlockPool(2)
    pool.allocate(1)
    pool.register(0, A)
    assert pool.allocate(1, shared=[0]) == (1,)
    pool.free([0])
    assert counts(pool) == (0, 0, 2)
    pool.free([0])
    assert counts(pool) == (0, 1, 1)


def test_a_shared_block_is_never_evicted_for_the_new_ones():
    pool = BlockPool(2)
    pool.allocate(1)
    pool.register(0, A)
    pool.free([0])
    pool.allocate(1)
    assert pool.allocate(1, shared=[0]) is None
    assert pool.lookup(A) == 0
    pool.free([1])
    assert pool.allocate(1, shared=[0]) == (1,)


def test_the_first_writer_of_a_content_wins():
    pool = BlockPool(2)
    pool.allocate(2)
    assert pool.register(0, A)
    assert not pool.register(1, A)
    assert pool.lookup(A) == 0
    pool.free([0, 1])
    assert counts(pool) == (1, 1, 0)


def test_freeing_a_block_once_too_often_raises():
    pool = BlockPool(2)
    pool.allocate(1)
    pool.free([0])
    with pytest.raises(BlockNotInUse, match="block 0"):
        pool.free([0])
    assert counts(pool) == (2, 0, 0)


def test_events_tell_what_was_stored_and_removed():
    pool = BlockPool(1, record_events=True)
    pool.allocate(1)
    pool.register(0, A)
    pool.free([0])
    assert pool.take_events() == (BlockEvent(BlockEventKind.STORED, A, 0),)
    pool.allocate(1)
    assert pool.take_events() == (BlockEvent(BlockEventKind.REMOVED, A, 0),)
    assert pool.take_events() == ()


def test_nothing_is_recorded_unless_asked_for():
    pool = BlockPool(1)
    pool.allocate(1)
    pool.register(0, A)
    assert pool.take_events() == ()


def test_a_pool_has_at_least_one_block():
    with pytest.raises(InvalidArgument, match="num_blocks is 0, it must be at least 1"):
        BlockPool(0)


def lost_count(pool: BlockPool) -> None:
    pool._num_idle_cached += 1


def stale_key(pool: BlockPool) -> None:
    pool._blocks[0].block_hash = None


def reference_without_taking(pool: BlockPool) -> None:
    pool._blocks[2].ref_count = 1


def cached_before_unused(pool: BlockPool) -> None:
    pool._free.remove(pool._blocks[0])
    pool._free.appendleft(pool._blocks[0])


def shared_without_key(pool: BlockPool) -> None:
    pool._blocks[1].ref_count = 2


@pytest.mark.parametrize(
    "damage", [lost_count, stale_key, reference_without_taking, cached_before_unused, shared_without_key]
)
def test_check_invariants_notices(damage):
    pool = BlockPool(3)
    pool.allocate(2)
    pool.register(0, A)
    pool.free([0])
    pool.check_invariants()
    damage(pool)
    with pytest.raises(AssertionError):
        pool.check_invariants()


def test_check_references_notices_a_leaked_block():
    pool = BlockPool(3)
    pool.allocate(2)
    pool.check_references({0: 1, 1: 1})
    with pytest.raises(AssertionError, match="held"):
        pool.check_references({0: 1})
