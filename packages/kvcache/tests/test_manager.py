import random

import pytest

from minivllm_kvcache import (
    Allocation,
    BlockEventKind,
    DuplicateRequest,
    InvalidArgument,
    KVCacheManager,
    PrefixKeys,
    UnknownRequest,
)


def run(kv: KVCacheManager, request_id: str, ids: list[int], salt: str = "") -> int:
    """Serves one request from start to end; returns how many tokens it did not have to compute."""
    keys = PrefixKeys(ids, kv.block_size, salt)
    num_cached = kv.match(keys)
    allocation = kv.allocate(request_id, keys, len(ids) - num_cached)
    assert allocation is not None
    assert allocation.num_cached_tokens == num_cached
    kv.commit(request_id, keys, len(ids))
    kv.free(request_id)
    kv.check_invariants()
    return num_cached


def snapshot(kv: KVCacheManager, *request_ids: str) -> tuple[object, ...]:
    return (kv.stats(), *(kv.block_ids(request_id) for request_id in request_ids))


# --- Prefix hits


def test_c01_a_prompt_found_whole_leaves_one_block_to_compute():
    kv = KVCacheManager(8, 4)
    assert run(kv, "first", [1, 2, 3, 4, 5, 6, 7, 8]) == 0
    assert run(kv, "again", [1, 2, 3, 4, 5, 6, 7, 8]) == 4
    assert run(kv, "longer", [1, 2, 3, 4, 5, 6, 7, 8, 9]) == 8


@pytest.mark.parametrize("num_tokens", range(1, 14))
@pytest.mark.parametrize("block_size", [1, 2, 3, 4])
def test_c01_at_least_one_known_token_is_computed(num_tokens, block_size):
    kv = KVCacheManager(32, block_size)
    ids = list(range(num_tokens))
    run(kv, "first", ids)
    num_cached = run(kv, "again", ids)
    assert num_cached <= num_tokens - 1 < num_cached + block_size
    assert num_cached % block_size == 0


def test_no_ids_and_no_hit():
    assert KVCacheManager(4, 4).match(PrefixKeys([], 4)) == 0


def test_asking_has_no_effect():
    kv = KVCacheManager(8, 4, record_events=True)
    run(kv, "first", list(range(9)))
    kv.take_events()
    before = kv.stats()
    assert [kv.match(PrefixKeys(range(9), 4)) for _ in range(3)] == [8, 8, 8]
    assert kv.stats() == before
    assert kv.take_events() == ()


def test_c03_blocks_are_shared_only_when_the_step_that_wrote_them_was_updated():
    kv = KVCacheManager(8, 4)
    first, second = (PrefixKeys([1, 2, 3, 4, 5, 6, 7, 8, last], 4) for last in (20, 30))
    assert kv.allocate("first", first, 9) == Allocation((0, 1, 2), 0)
    assert kv.allocate("second", second, 9) == Allocation((3, 4, 5), 0)
    kv.commit("first", first, 9)
    assert kv.match(second) == 8


def test_c03_of_a_chunked_prompt_only_what_was_written_is_shared():
    kv = KVCacheManager(8, 4)
    first, second = (PrefixKeys([1, 2, 3, 4, 5, 6, 7, 8, last], 4) for last in (20, 30))
    kv.allocate("first", first, 7)
    kv.commit("first", first, 7)
    assert kv.match(second) == 4
    kv.grow("first", 9)
    assert kv.match(second) == 4
    kv.commit("first", first, 8)
    assert kv.match(second) == 8


def test_c03_a_request_aborted_before_its_step_leaves_nothing_behind():
    kv = KVCacheManager(8, 4)
    first, second = (PrefixKeys([1, 2, 3, 4, 5, 6, 7, 8, last], 4) for last in (20, 30))
    kv.allocate("first", first, 9)
    kv.free("first")
    assert kv.match(second) == 0
    assert kv.stats().unused == 8


def test_c04a_a_recycled_block_loses_its_old_identity():
    kv = KVCacheManager(3, 4)
    one, two = [1, 1, 1, 1, 7, 7, 7, 7, 0], [2, 2, 2, 2, 7, 7, 7, 7, 0]
    assert run(kv, "one", one) == 0
    assert run(kv, "two", two) == 0
    assert run(kv, "one again", one) == 0


def test_c04c_equal_content_after_another_prefix_is_no_hit():
    kv = KVCacheManager(8, 4)
    run(kv, "first", [9, 9, 9, 9, 1, 2, 3, 4])
    assert kv.match(PrefixKeys([1, 2, 3, 4, 5], 4)) == 0


def test_c04d_freeing_twice_raises_and_changes_nothing():
    kv = KVCacheManager(4, 4)
    keys = PrefixKeys(range(6), 4)
    kv.allocate("r", keys, 6)
    kv.free("r")
    before = snapshot(kv)
    with pytest.raises(UnknownRequest, match="'r'"):
        kv.free("r")
    assert snapshot(kv) == before


def test_c04e_a_hundred_prompts_leave_no_more_keys_than_blocks():
    kv = KVCacheManager(8, 4, record_events=True)
    rng = random.Random(4)
    known: set[bytes] = set()
    for number in range(100):
        run(kv, str(number), [rng.randrange(3) for _ in range(rng.randint(1, 30))])
        for event in kv.take_events():
            if event.kind is BlockEventKind.STORED:
                known.add(event.key)
            else:
                known.remove(event.key)
        stats = kv.stats()
        assert len(known) == stats.idle_cached <= 8
        assert (stats.in_use, stats.allocatable) == (0, 8)
    assert kv.stats().evictions > 0


def test_salts_do_not_share():
    kv = KVCacheManager(8, 4)
    run(kv, "first", list(range(9)), salt="a")
    assert run(kv, "other", list(range(9)), salt="b") == 0
    assert run(kv, "same", list(range(9)), salt="a") == 8


def test_generated_tokens_can_be_hit_like_prompt_tokens():
    kv = KVCacheManager(8, 4)
    keys = PrefixKeys([1, 2, 3], 4)
    kv.allocate("r", keys, 3)
    for num_written, sampled in enumerate([4, 5, 6, 7, 8], start=3):
        kv.grow("r", num_written)
        kv.commit("r", keys, num_written)
        keys.append(sampled)
    assert kv.match(PrefixKeys([1, 2, 3, 4, 5, 6, 7, 8, 9], 4)) == 4
    kv.commit("r", keys, 7)
    assert kv.match(keys) == 4


def test_a_preempted_request_finds_its_own_blocks_again():
    kv = KVCacheManager(8, 4)
    keys = PrefixKeys(range(9), 4)
    first = kv.allocate("r", keys, 9)
    kv.commit("r", keys, 9)
    kv.free("r")
    again = kv.allocate("r", keys, 1)
    assert again is not None
    assert again.num_cached_tokens == 8
    assert again.block_ids[:2] == first.block_ids[:2]


def test_a_request_that_ignores_the_cache_still_fills_it():
    kv = KVCacheManager(8, 4)
    keys = PrefixKeys(range(9), 4)
    run(kv, "first", list(range(5)))
    assert kv.allocate("r", keys, 9, use_cache=False).num_cached_tokens == 0
    assert kv.stats().queries == 5
    kv.commit("r", keys, 9)
    assert kv.match(keys) == 8


def test_without_prefix_caching_nothing_is_ever_hit_or_kept():
    kv = KVCacheManager(8, 4, prefix_caching=False, record_events=True)
    assert run(kv, "first", list(range(9))) == 0
    assert run(kv, "again", list(range(9))) == 0
    stats = kv.stats()
    assert (stats.unused, stats.queries, stats.hits) == (8, 0, 0)
    assert kv.take_events() == ()


def test_a_chain_with_a_gap_is_hit_up_to_the_gap_only():
    kv = KVCacheManager(4, 4)
    short, long = PrefixKeys(range(4), 4), PrefixKeys(range(8), 4)
    kv.allocate("first writer", short, 4)
    kv.allocate("copy", long, 8)
    kv.commit("first writer", short, 4)
    kv.commit("copy", long, 8)  # its block 0 stays private, its block 1 is the only one of its content
    assert kv.match(PrefixKeys(range(9), 4)) == 8
    kv.free("first writer")
    kv.allocate("evicts block 0", PrefixKeys([99], 4), 8)
    assert kv.stats().evictions == 1
    assert kv.match(PrefixKeys(range(9), 4)) == 0


def test_prefixes_outlive_tails():
    kv = KVCacheManager(4, 4)
    run(kv, "long", list(range(16)))
    kv.allocate("other", PrefixKeys([99], 4), 8)
    assert kv.match(PrefixKeys(range(16), 4)) == 8


def test_stats_count_looked_up_and_found_tokens_of_requests_that_got_in():
    kv = KVCacheManager(3, 4)
    run(kv, "first", list(range(9)))
    assert kv.allocate("too large", PrefixKeys(range(9), 4), 99) is None
    run(kv, "again", list(range(9)))
    stats = kv.stats()
    assert (stats.queries, stats.hits) == (18, 8)


# --- Room


def test_a_table_covers_hits_and_new_tokens():
    kv = KVCacheManager(8, 4)
    run(kv, "first", list(range(9)))
    allocation = kv.allocate("r", PrefixKeys(range(20), 4), 5)
    assert allocation.num_cached_tokens == 8
    assert len(allocation.block_ids) == 4
    assert kv.block_ids("r") == allocation.block_ids


def test_grow_takes_the_total_and_returns_only_what_is_new():
    kv = KVCacheManager(4, 4)
    kv.allocate("r", PrefixKeys(range(4), 4), 4)
    assert kv.grow("r", 4) == ()
    assert kv.grow("r", 1) == ()
    assert kv.grow("r", 5) == (1,)
    assert kv.grow("r", 16) == (2, 3)
    assert kv.block_ids("r") == (0, 1, 2, 3)


def test_no_room_is_none_and_changes_nothing():
    kv = KVCacheManager(4, 4)
    run(kv, "cached", list(range(9)))
    kv.allocate("r", PrefixKeys([7], 4), 1)
    before = snapshot(kv, "r")
    assert kv.allocate("s", PrefixKeys(range(9), 4), 9) is None
    assert kv.grow("r", 17) is None
    assert snapshot(kv, "r") == before
    with pytest.raises(UnknownRequest):
        kv.block_ids("s")
    assert kv.grow("r", 16) is not None


def test_a_reserve_is_left_allocatable():
    kv = KVCacheManager(4, 4)
    run(kv, "cached", list(range(9)))
    keys = PrefixKeys(range(9), 4)
    assert kv.allocate("r", keys, 4, reserve=2) is None
    assert kv.allocate("r", keys, 4, reserve=1) is not None
    assert kv.num_allocatable == 1


def test_a_block_held_by_two_is_free_after_both_let_go():
    kv = KVCacheManager(4, 4)
    keys = PrefixKeys(range(5), 4)
    kv.allocate("a", keys, 5)
    kv.commit("a", keys, 5)
    kv.allocate("b", keys, 1)
    assert kv.stats().in_use == 3
    assert [kv.num_exclusive_blocks(name) for name in "ab"] == [1, 1]
    kv.free("a")
    assert kv.stats().in_use == kv.num_exclusive_blocks("b") == 2
    kv.free("b")
    stats = kv.stats()
    assert (stats.unused, stats.idle_cached, stats.in_use) == (3, 1, 0)


def test_sizes_can_be_read_back():
    kv = KVCacheManager(4, 16)
    assert (kv.num_blocks, kv.block_size, kv.num_allocatable) == (4, 16, 4)


# --- Misuse


@pytest.mark.parametrize(("num_blocks", "block_size", "name"), [(0, 4, "num_blocks"), (4, 0, "block_size")])
def test_sizes_below_one_are_refused(num_blocks, block_size, name):
    with pytest.raises(InvalidArgument, match=f"{name} is 0"):
        KVCacheManager(num_blocks, block_size)


def test_a_request_that_holds_blocks_cannot_be_allocated_again():
    kv = KVCacheManager(4, 4)
    kv.allocate("r", PrefixKeys([1], 4), 5)
    with pytest.raises(DuplicateRequest, match="'r' holds 2 blocks"):
        kv.allocate("r", PrefixKeys([1], 4), 1)
    kv.check_invariants()


def test_a_request_without_blocks_is_unknown_everywhere():
    kv = KVCacheManager(4, 4)
    keys = PrefixKeys([1], 4)
    for call in (
        lambda: kv.grow("r", 1),
        lambda: kv.commit("r", keys, 1),
        lambda: kv.free("r"),
        lambda: kv.block_ids("r"),
        lambda: kv.num_exclusive_blocks("r"),
    ):
        with pytest.raises(UnknownRequest, match="'r' holds no blocks"):
            call()


@pytest.mark.parametrize("counts", [{"num_new": -1}, {"num_new": 1, "reserve": -1}])
def test_negative_counts_are_refused(counts):
    kv = KVCacheManager(4, 4)
    with pytest.raises(InvalidArgument, match="-1"):
        kv.allocate("r", PrefixKeys([1], 4), **counts)
    assert kv.stats().in_use == 0


def test_keys_of_another_block_size_are_refused():
    kv = KVCacheManager(4, 4)
    kv.allocate("r", PrefixKeys(range(8), 4), 8)
    wrong = PrefixKeys(range(8), 8)
    for call in (
        lambda: kv.match(wrong),
        lambda: kv.allocate("s", wrong, 8),
        lambda: kv.commit("r", wrong, 8),
    ):
        with pytest.raises(InvalidArgument, match="block size 8 in a cache of 4"):
            call()


@pytest.mark.parametrize(
    ("num_known", "num_covered"), [(7, 8), (8, 4)], ids=["ids are not known", "table is too short"]
)
def test_more_than_known_and_covered_tokens_cannot_have_been_written(num_known, num_covered):
    kv = KVCacheManager(4, 4)
    keys = PrefixKeys(range(num_known), 4)
    kv.allocate("r", keys, num_covered)
    before = snapshot(kv, "r")
    with pytest.raises(InvalidArgument, match="num_written is 8"):
        kv.commit("r", keys, 8)
    assert snapshot(kv, "r") == before
    kv.commit("r", keys, 4)
    assert kv.match(keys) == 4


def test_a_commit_with_an_id_that_has_no_key_offers_nothing():
    kv = KVCacheManager(4, 4, record_events=True)
    keys = PrefixKeys([1, 2, 3, 4, 5, 6, 7, -8], 4)
    kv.allocate("r", keys, 8)
    with pytest.raises(InvalidArgument, match="-8"):
        kv.commit("r", keys, 8)
    assert kv.take_events() == ()
    kv.free("r")
    assert kv.stats().unused == 4
