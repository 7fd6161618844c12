import pytest

from minivllm_bench.errors import InvalidSetting
from minivllm_bench.sizes import parse_sizes


def test_sizes_are_whole_numbers_in_the_order_given():
    assert parse_sizes("--rows", "64, 1,4096") == (64, 1, 4096)


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "a", "1,,2", "8,8", "²"])
def test_anything_else_is_named_with_its_option(text):
    with pytest.raises(InvalidSetting, match=r"^--rows names"):
        parse_sizes("--rows", text)
