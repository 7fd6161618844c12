import pytest

from minivllm_kvcache import (
    BlockNotInUse,
    DuplicateRequest,
    InvalidArgument,
    KVCacheError,
    UnknownRequest,
)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (InvalidArgument("block_size is 0"), ValueError),
        (UnknownRequest("r1"), LookupError),
        (DuplicateRequest("r1", 3), ValueError),
        (BlockNotInUse(7), ValueError),
    ],
)
def test_each_error_can_be_caught_by_the_package_s_base_or_by_the_builtin_kind(error, builtin):
    assert isinstance(error, KVCacheError)
    assert isinstance(error, builtin)


def test_messages_name_what_went_wrong():
    assert str(UnknownRequest("r1")) == "request 'r1' holds no blocks"
    assert str(DuplicateRequest("r1", 3)) == "request 'r1' holds 3 blocks already"
    assert "block 7" in str(BlockNotInUse(7))


def test_errors_carry_the_culprit():
    assert UnknownRequest("r1").request_id == "r1"
    assert DuplicateRequest("r1", 3).request_id == "r1"
    assert BlockNotInUse(7).block_id == 7
