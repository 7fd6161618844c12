import torch
from hypothesis import given
from hypothesis import strategies as st

from minivllm_runtime.device_state.staging import HostCopy, TableWrites

WIDTH = 6
ROWS = st.dictionaries(
    st.integers(0, 3), st.tuples(st.integers(0, 3), st.lists(st.integers(0, 99), max_size=3))
)


@given(ROWS, ROWS)
def test_what_was_added_is_in_the_table_after_a_flush_and_nothing_else_changed(first, second):
    table = torch.full((4, WIDTH), -1, dtype=torch.int32)
    expected = table.clone()
    writes = TableWrites(table)
    for changes in (first, second):
        for row, (start, values) in changes.items():
            writes.add(row, start, values)
            expected[row, start : start + len(values)] = torch.tensor(values, dtype=torch.int32)
        writes.flush()
    assert torch.equal(table, expected)


def test_what_was_discarded_is_never_written():
    table = torch.zeros(2, WIDTH, dtype=torch.int64)
    writes = TableWrites(table)
    writes.add(0, 1, [5, 6])
    writes.discard()
    writes.add(1, 0, [7])
    writes.flush()
    assert table.nonzero().tolist() == [[1, 0]]


def test_ids_arrive_on_the_host():
    assert HostCopy(torch.tensor([3, 1])).wait() == [3, 1]
    assert HostCopy(torch.empty(0, dtype=torch.int64)).wait() == []
