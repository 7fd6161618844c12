import pytest

from minivllm_kvcache.block import Block


def test_a_new_block_is_held_by_nobody_and_carries_nothing():
    block = Block(3)
    assert (block.block_id, block.ref_count, block.block_hash) == (3, 0, None)
    assert block.prev_free is None
    assert block.next_free is None


def test_a_block_has_no_room_for_anything_else():
    with pytest.raises(AttributeError):
        Block(0).colour = "red"


def test_repr_shows_the_state():
    block = Block(3)
    assert repr(block) == "Block(3, ref_count=0, no key)"
    block.block_hash = bytes(range(32))
    block.ref_count = 2
    assert repr(block) == "Block(3, ref_count=2, 000102030405)"
