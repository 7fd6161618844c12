import pytest

from minivllm_runtime.errors import InvalidParameter
from minivllm_server.generation import check_num_choices


def test_what_the_queue_never_holds_is_refused_with_the_numbers():
    check_num_choices(2, 4, 8)
    with pytest.raises(InvalidParameter, match=r"at most 8, got 3 \* 3"):
        check_num_choices(3, 3, 8)
