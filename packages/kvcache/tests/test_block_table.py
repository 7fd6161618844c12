import pytest

from minivllm_kvcache import BlockTable, InvalidArgument


def test_slots_follow_the_blocks():
    table = BlockTable(4, [7, 2])
    table.extend([5])
    assert [table.slot(position) for position in (0, 3, 4, 8, 9)] == [28, 31, 8, 20, 21]


def test_each_position_has_a_slot_of_its_own():
    table = BlockTable(3, [4, 0, 9])
    assert len({table.slot(position) for position in range(9)}) == 9


def test_entries_stay_when_more_are_added():
    table = BlockTable(4)
    assert (len(table), table.capacity_tokens, table.block_ids) == (0, 0, ())
    table.extend((7,))
    table.extend((2, 5))
    assert (len(table), table.capacity_tokens, table.block_ids) == (3, 12, (7, 2, 5))
    assert [table[i] for i in range(3)] == [7, 2, 5]


def test_it_does_not_follow_the_list_it_was_made_from():
    block_ids = [1]
    table = BlockTable(4, block_ids)
    block_ids.append(2)
    assert table.block_ids == (1,)


@pytest.mark.parametrize("position", [-1, 8])
def test_a_position_that_is_not_covered_is_refused(position):
    with pytest.raises(InvalidArgument, match=f"position {position} is outside the 8 covered"):
        BlockTable(4, [0, 1]).slot(position)
