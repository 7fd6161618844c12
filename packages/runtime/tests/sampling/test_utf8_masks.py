from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_runtime.sampling.utf8_masks import BETWEEN_CHARACTERS, Utf8Masks

BYTES = [bytes([byte]) for byte in range(256)]
BORDERS = bytes.fromhex("00 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff")
ENDS = [b"", *(bytes([first, *[0x80] * more]) for first in (0x80, 0x90, 0xA0) for more in range(3))]


def is_begin_of_utf8(data):
    """Whether Python decodes these bytes with some others behind them."""
    for end in ENDS:
        try:
            (data + end).decode()
        except UnicodeDecodeError:
            continue
        return True
    return False


def read(masks, ids):
    """What is missing after ids; None if one of them may not follow."""
    awaited = BETWEEN_CHARACTERS
    for token_id in ids:
        awaited = masks.after(awaited, token_id)
        if awaited is None:
            return None
    return awaited


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_bytes_may_follow_where_python_reads_on(length):
    masks = Utf8Masks(BYTES)
    begins = [bytes(begin) for begin in product(BORDERS, repeat=length - 1) if is_begin_of_utf8(bytes(begin))]
    for data in (begin + bytes([byte]) for begin in begins for byte in BORDERS):
        assert (read(masks, data) is not None) == is_begin_of_utf8(data), data.hex()


@given(st.text())
def test_every_text_is_allowed_and_ends_between_characters(text):
    assert read(Utf8Masks(BYTES), text.encode()) == BETWEEN_CHARACTERS


@given(
    st.lists(st.sampled_from(BORDERS), min_size=5).map(bytes) | st.text(min_size=5).map(str.encode), st.data()
)
def test_tokens_may_follow_where_their_bytes_may(data, draw):
    cuts = draw.draw(st.lists(st.integers(1, len(data) - 1), max_size=4, unique=True).map(sorted))
    tokens = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    masks = Utf8Masks([*BYTES, *tokens])
    ids = range(len(BYTES), len(BYTES) + len(tokens))
    assert read(masks, ids) == read(masks, data)


@given(
    st.lists(st.binary(max_size=4), min_size=1, max_size=70),
    st.sampled_from(["", "¢", "한", "ࠀ", "€", "𐀀", "\U00040000", "\U0010ffff"]),
)
def test_words_have_the_ids_that_may_follow(tokens, character):
    masks = Utf8Masks([*BYTES, *tokens])
    for length in range(len(character.encode())):
        awaited = read(masks, character.encode()[:length])
        words = masks.words(awaited).tolist()
        for token_id in range(len(BYTES) + len(tokens)):
            is_allowed = bool(words[token_id // 32] >> token_id % 32 & 1)
            assert is_allowed == (masks.after(awaited, token_id) is not None)
