import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_kvcache import InvalidArgument, PrefixKeys

IDS = st.lists(st.integers(0, 3), max_size=12)
SALTS = st.sampled_from(["", "a", "b"])


def all_keys(keys: PrefixKeys) -> list[bytes]:
    return [keys.key(i) for i in range(keys.num_tokens // keys.block_size)]


def test_the_format_of_a_key_is_fixed():
    """Routers compute the same digests elsewhere, so a change of the format is a change of the interface."""
    keys = PrefixKeys([1, 2, 3, 4, 5, 6, 7, 2**32 - 1], 4, salt="tenant")
    assert [key.hex() for key in all_keys(keys)] == [
        "d5b9f9b4a8d0001cc9dfc65a312022b10113037c6b71f150bbf9ecfa00af398d",
        "7955e0be6e28440b013bdd53350cea10b56dea492a8945158908c4757e410222",
    ]


@given(a=IDS, b=IDS, salt_a=SALTS, salt_b=SALTS, block_size=st.integers(1, 4))
def test_keys_are_equal_exactly_when_salt_and_whole_prefix_are(a, b, salt_a, salt_b, block_size):
    keys_a, keys_b = PrefixKeys(a, block_size, salt_a), PrefixKeys(b, block_size, salt_b)
    for i, key_a in enumerate(all_keys(keys_a)):
        for j, key_b in enumerate(all_keys(keys_b)):
            same = (salt_a, a[: (i + 1) * block_size]) == (salt_b, b[: (j + 1) * block_size])
            assert (key_a == key_b) is same


@pytest.mark.parametrize(
    "other",
    [
        PrefixKeys([9, 9, 9, 9, 1, 2, 3, 4], 4),
        PrefixKeys([0, 0, 0, 0, 1, 2, 3, 4], 4, salt="s"),
        PrefixKeys([0, 0, 0, 0, 4, 3, 2, 1], 4),
        PrefixKeys([0, 0, 0, 0, 1, 2, 3, 5], 4),
        PrefixKeys([0, 0, 0, 0, 1, 2, 3 + 2**8, 4], 4),
        PrefixKeys([1, 2, 3, 4], 4),
    ],
    ids=["parent", "salt", "order", "last id", "high byte", "no parent"],
)
def test_c04b_parent_salt_every_id_and_their_order_change_the_key(other):
    key = PrefixKeys([0, 0, 0, 0, 1, 2, 3, 4], 4).key(1)
    assert len(key) == 32
    assert other.key(other.num_tokens // 4 - 1) != key


def test_the_neighbouring_digits_of_ids_are_not_confused():
    assert PrefixKeys([1, 23], 2).key(0) != PrefixKeys([12, 3], 2).key(0)
    assert PrefixKeys([1, 0], 2).key(0) != PrefixKeys([1], 1).key(0)


@pytest.mark.parametrize("salt", ["\ud800", "\U0001f336", "a" * 1000])
def test_any_text_is_a_salt(salt):
    assert PrefixKeys([1], 1, salt).key(0) != PrefixKeys([1], 1).key(0)


@given(given_ids=IDS, later=st.lists(IDS), block_size=st.integers(1, 4), data=st.data())
def test_ids_that_become_known_later_give_the_same_keys_and_tokens(given_ids, later, block_size, data):
    keys = PrefixKeys(given_ids, block_size)
    known = list(given_ids)
    for ids in later:
        if len(ids) == 1:
            keys.append(ids[0])
        else:
            keys.extend(ids)
        known += ids
        assert all_keys(keys) == all_keys(PrefixKeys(known, block_size))
    assert keys.num_tokens == len(known)
    assert [keys.token(i) for i in range(len(known))] == known
    stop = data.draw(st.integers(0, len(known)))
    start = data.draw(st.integers(0, stop))
    assert list(keys.tokens(start, stop)) == known[start:stop]
    assert list(keys.tokens(start)) == known[start:]


def test_a_block_is_hashed_once():
    keys = PrefixKeys(range(64), 16)
    last = keys.key(3)
    first = keys.key(0)
    keys.extend(range(64, 128))
    assert keys.key(7) != last
    assert keys.key(3) is last
    assert keys.key(0) is first


def test_a_range_is_not_copied():
    trillion = PrefixKeys(range(10**12), 16)
    assert trillion.num_tokens == 10**12
    assert trillion.tokens() == range(10**12)
    assert trillion.key(1) == PrefixKeys(list(range(32)), 16).key(1)


def test_a_list_may_change_after_it_was_given():
    ids = [1, 2, 3, 4]
    keys = PrefixKeys(ids, 4)
    ids[0] = 9
    assert keys.key(0) == PrefixKeys([1, 2, 3, 4], 4).key(0)
    assert keys.tokens() == (1, 2, 3, 4)


def test_taken_tokens_do_not_change_later():
    keys = PrefixKeys([1], 4)
    keys.append(2)
    before = (keys.tokens(), keys.tokens(1))
    keys.append(3)
    assert before == ((1, 2), (2,))


@pytest.mark.parametrize("index", [-1, 2])
def test_a_block_that_is_not_full_has_no_key(index):
    with pytest.raises(InvalidArgument, match=f"block {index} has no key: known ids fill 2 blocks"):
        PrefixKeys(range(11), 4).key(index)


@pytest.mark.parametrize("position", [-1, 3])
def test_a_token_that_is_not_known_is_refused(position):
    with pytest.raises(InvalidArgument, match="3 known ids"):
        PrefixKeys([5, 6, 7], 4).token(position)


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (0, 4), (2, 1), (4, None)])
def test_a_slice_outside_the_known_ids_is_refused(start, stop):
    with pytest.raises(InvalidArgument, match="3 known ids"):
        PrefixKeys([5, 6, 7], 4).tokens(start, stop)


@pytest.mark.parametrize("token_id", [-1, 2**32])
def test_an_id_that_cannot_be_encoded_is_refused_and_named(token_id):
    keys = PrefixKeys([1, 2], 2)
    keys.extend([3, token_id])
    good = keys.key(0)
    with pytest.raises(InvalidArgument, match=str(token_id)):
        keys.key(1)
    assert keys.key(0) is good


def test_a_block_holds_at_least_one_token():
    with pytest.raises(InvalidArgument, match="block_size is 0, it must be at least 1"):
        PrefixKeys([1], 0)
