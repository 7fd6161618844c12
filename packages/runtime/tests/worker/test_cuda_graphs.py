import pytest

from minivllm_runtime.worker.cuda_graphs import decode_sizes, mixed_sizes


@pytest.mark.parametrize("max_rows", [1, 2, 7, 9, 64, 255, 256, 512])
def test_every_number_of_rows_has_a_size_not_much_larger(max_rows):
    sizes = decode_sizes(max_rows)
    assert sizes[-1] == max_rows
    for rows in range(1, max_rows + 1):
        assert rows <= min(size for size in sizes if size >= rows) <= max(rows + 7, 1.25 * rows)


@pytest.mark.parametrize("max_tokens", [1, 4, 16, 17, 100, 2048, 4096])
def test_every_number_of_tokens_has_a_size_not_much_larger(max_tokens):
    sizes = mixed_sizes(max_tokens)
    assert sizes[-1] == max_tokens
    assert list(sizes) == sorted(set(sizes))
    for tokens in range(1, max_tokens + 1):
        assert tokens <= min(size for size in sizes if size >= tokens) <= max(16, 1.5 * tokens)


def test_there_is_no_graph_for_the_largest_steps():
    assert decode_sizes(2000)[-1] == 512
    assert mixed_sizes(10**6)[-1] == 4096
