from hypothesis import given
from hypothesis import strategies as st

from minivllm_kernels.attention_config import decode_config, head_tile_size, prefill_config

SHARED_MEMORY_BYTES = (
    99 * 1024
)  # of a block on cards of compute capability 8.6, the least of those with bfloat16

head_dims, element_sizes, group_sizes = st.integers(1, 256), st.sampled_from([2, 4]), st.integers(1, 64)


def check(config, head_dim, element_bytes, group_size):
    for size in (config.tile_rows, config.tile_kv, config.num_warps):
        assert size & (size - 1) == 0
    assert config.tile_rows >= 16
    assert config.tile_rows >= group_size
    row_bytes = head_tile_size(head_dim) * element_bytes
    tiles_in_flight = 2 * (config.num_stages - 1) * config.tile_kv * row_bytes
    assert tiles_in_flight + config.tile_rows * row_bytes <= SHARED_MEMORY_BYTES or head_dim > 128


@given(head_dims, element_sizes, group_sizes)
def test_a_decode_tile_holds_a_group_and_fits(head_dim, element_bytes, group_size):
    check(decode_config(head_dim, element_bytes, group_size), head_dim, element_bytes, group_size)


def test_eight_programs_of_short_heads_share_the_registers_of_a_multiprocessor():
    config = decode_config(64, 2, group_size=8)
    assert config.max_registers is not None
    assert 8 * 32 * config.num_warps * config.max_registers <= 65536


def test_large_groups_have_the_registers_that_they_need():
    assert decode_config(64, 2, group_size=17).max_registers is None


@given(head_dims, element_sizes, group_sizes, st.integers(1, 10_000))
def test_a_prefill_tile_holds_a_group_and_fits(head_dim, element_bytes, group_size, max_query_len):
    config = prefill_config(head_dim, element_bytes, group_size, max_query_len)
    check(config, head_dim, element_bytes, group_size)


def test_short_chunks_get_small_tiles():
    small = prefill_config(64, 2, 8, max_query_len=2)
    assert (small.tile_rows, small.max_registers) == (16, None)
    assert prefill_config(64, 2, 8, max_query_len=3).tile_rows == 64
