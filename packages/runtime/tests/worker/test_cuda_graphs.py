import pytest

from minivllm_runtime.worker.cuda_graphs import padded_sizes


@pytest.mark.parametrize("max_rows", [1, 2, 7, 9, 64, 255, 256, 512])
def test_every_number_of_rows_has_a_size_not_much_larger(max_rows):
    sizes = padded_sizes(max_rows)
    assert sizes[-1] == max_rows
    for rows in range(1, max_rows + 1):
        assert rows <= min(size for size in sizes if size >= rows) <= max(rows + 7, 1.25 * rows)


def test_there_is_no_graph_for_the_largest_batches():
    assert padded_sizes(2000)[-1] == 512
