from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_kvcache.block import Block
from minivllm_kvcache.free_queue import FreeBlockQueue


def ids(queue: FreeBlockQueue) -> list[int]:
    return [block.block_id for block in queue]


def test_starts_in_the_order_given():
    queue = FreeBlockQueue(Block(i) for i in range(3))
    assert ids(queue) == [0, 1, 2]
    assert len(queue) == 3


def test_popping_from_an_empty_queue_raises():
    with pytest.raises(IndexError, match="empty"):
        FreeBlockQueue().popleft()


def test_a_removed_block_keeps_no_link_to_its_old_neighbours():
    blocks = [Block(i) for i in range(3)]
    queue = FreeBlockQueue(blocks)
    queue.remove(blocks[1])
    assert blocks[1].prev_free is None
    assert blocks[1].next_free is None
    assert blocks[0].next_free is blocks[2]
    assert blocks[2].prev_free is blocks[0]


@given(
    num_blocks=st.integers(1, 6),
    moves=st.lists(
        st.tuples(st.sampled_from(["append", "appendleft", "popleft", "remove"]), st.integers(0, 5))
    ),
)
def test_behaves_like_a_deque(num_blocks, moves):
    blocks = [Block(i) for i in range(num_blocks)]
    queue, model = FreeBlockQueue(blocks), deque(range(num_blocks))
    for move, pick in moves:
        outside = [i for i in range(num_blocks) if i not in model]
        if move in ("append", "appendleft") and outside:
            block_id = outside[pick % len(outside)]
            getattr(queue, move)(blocks[block_id])
            getattr(model, move)(block_id)
        elif move == "popleft" and model:
            assert queue.popleft().block_id == model.popleft()
        elif move == "remove" and model:
            block_id = model[pick % len(model)]
            queue.remove(blocks[block_id])
            model.remove(block_id)
        assert ids(queue) == list(model)
        assert len(queue) == len(model)


def test_a_long_queue_is_released_without_deep_recursion():
    queue = FreeBlockQueue(Block(i) for i in range(200_000))
    assert len(queue) == 200_000
    del queue
