from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_runtime.engine.detokenizer import IncrementalDetokenizer

EMOJI = tuple("😀".encode())
CHILLI = tuple("🌶".encode())

# Whole characters of every length, their beginnings and ends, and bytes that begin or continue nothing.
INTERESTING_BYTES = (*"ax\n é€😀🌶".encode(), 0xC0, 0xE0, 0xED, 0xA0, 0xF0, 0xF4, 0x90, 0xFF)


def pieces(tokenizer, token_ids, **kwargs):
    """What a reader gets for each id, and at the end."""
    detokenizer = IncrementalDetokenizer(tokenizer, **kwargs)
    return [detokenizer.push((token_id,)) for token_id in token_ids] + [detokenizer.finish()]


def decode(tokenizer, token_ids, *, skip_special_tokens=False):
    return tokenizer.decode(token_ids, skip_special_tokens=skip_special_tokens)


class TestByteLevel:
    def test_a_character_appears_when_it_is_whole(self, byte_tokenizer):
        assert pieces(byte_tokenizer, EMOJI) == ["", "", "", "😀", ""]

    def test_a_cut_character_becomes_what_decoding_all_ids_gives(self, byte_tokenizer):
        assert pieces(byte_tokenizer, EMOJI[:3]) == ["", "", "", "\ufffd"]
        assert decode(byte_tokenizer, EMOJI[:3]) == "\ufffd"

    def test_the_end_of_a_character_that_the_prompt_began_shows_nothing_of_the_prompt(self, byte_tokenizer):
        rest = CHILLI[2:]
        assert "".join(pieces(byte_tokenizer, rest)) == decode(byte_tokenizer, rest) == "\ufffd\ufffd"

    def test_a_genuine_replacement_character_does_not_stall(self, make_byte_tokenizer):
        tokenizer = make_byte_tokenizer(["\ufffd"])
        genuine = 258
        assert tokenizer.token_bytes(genuine) == "\ufffd".encode()
        assert pieces(tokenizer, [genuine, ord("x"), genuine]) == ["\ufffd", "x", "\ufffd", ""]

    def test_bytes_that_can_become_no_character_do_not_stall(self, byte_tokenizer):
        assert pieces(byte_tokenizer, [0xFF, 0xF0, 0xF0, 0xF0]) == [
            "\ufffd",
            "",
            "\ufffd",
            "\ufffd",
            "\ufffd",
        ]

    def test_hidden_ids_add_nothing_even_inside_a_character(self, byte_tokenizer):
        im_end = byte_tokenizer.special_token_id("<|im_end|>")
        ids = [*EMOJI[:2], im_end, *EMOJI[2:]]
        assert "".join(pieces(byte_tokenizer, ids, hidden_token_ids=frozenset([im_end]))) == "😀"
        assert "".join(pieces(byte_tokenizer, ids)) == decode(byte_tokenizer, ids)

    @given(st.lists(st.sampled_from((*INTERESTING_BYTES, 256, 257)), max_size=12))
    def test_pieces_joined_are_the_text_of_all_ids(self, byte_tokenizer, ids):
        assert "".join(pieces(byte_tokenizer, ids)) == decode(byte_tokenizer, ids)
        specials = byte_tokenizer.special_token_ids
        shown = "".join(pieces(byte_tokenizer, ids, hidden_token_ids=specials))
        assert shown == decode(byte_tokenizer, ids, skip_special_tokens=True)

    @given(st.lists(st.sampled_from(INTERESTING_BYTES), max_size=12), st.integers(0, 12))
    def test_the_text_does_not_depend_on_how_ids_arrive(self, byte_tokenizer, ids, cut):
        detokenizer = IncrementalDetokenizer(byte_tokenizer)
        text = detokenizer.push(ids[:cut]) + detokenizer.push(ids[cut:]) + detokenizer.finish()
        assert text == "".join(pieces(byte_tokenizer, ids))

    @given(st.data())
    def test_a_real_vocabulary(self, smollm2_tokenizer, data):
        any_id = st.integers(0, smollm2_tokenizer.vocab_size - 1)
        text_ids = st.text().map(smollm2_tokenizer.encode)
        ids = data.draw(st.lists(any_id, max_size=12) | text_ids)
        assert "".join(pieces(smollm2_tokenizer, ids)) == decode(smollm2_tokenizer, ids)


class TestByteFallback:
    """SentencePiece-type vocabularies. In the small one, token b + 3 is the byte b."""

    @staticmethod
    def bytes_of(text):
        return [byte + 3 for byte in text.encode()]

    def test_a_character_appears_when_it_is_whole(self, byte_fallback_tokenizer):
        assert pieces(byte_fallback_tokenizer, self.bytes_of("\n😀")) == ["\n", "", "", "", "😀", ""]

    def test_only_the_space_before_the_first_token_is_dropped(self, byte_fallback_tokenizer):
        hello = byte_fallback_tokenizer.backend.token_to_id("▁hello")
        newline = self.bytes_of("\n")
        assert pieces(byte_fallback_tokenizer, [hello, hello]) == ["hello", " hello", ""]
        assert pieces(byte_fallback_tokenizer, [*newline, hello]) == ["\n", " hello", ""]
        bos = byte_fallback_tokenizer.bos_token_id
        assert pieces(byte_fallback_tokenizer, [bos, hello], hidden_token_ids={bos}) == ["", "hello", ""]

    def test_whole_characters_stay_though_broken_bytes_follow_them(self, byte_fallback_tokenizer):
        ids = self.bytes_of("\n😀")
        assert "".join(pieces(byte_fallback_tokenizer, ids[:-1])) == "\n\ufffd\ufffd\ufffd"
        assert "".join(pieces(byte_fallback_tokenizer, [*ids, 0xFF + 3])) == "\n😀\ufffd"

    @given(st.data())
    def test_pieces_joined_are_the_text_of_all_ids(self, byte_fallback_tokenizer, data):
        tokenizer = byte_fallback_tokenizer
        word = st.sampled_from([[i] for i in range(tokenizer.vocab_size) if not 3 <= i < 259])
        whole = st.sampled_from([self.bytes_of(char) for char in "a \né€😀"])
        broken = st.sampled_from(
            [[b + 3 for b in run] for run in (EMOJI[:3], EMOJI[1:], (0xFF,), (0xF0,) * 4)]
        )
        alone = st.tuples(word, broken, word).map(lambda parts: [*parts[0], *parts[1], *parts[2]])
        ids = list(chain.from_iterable(data.draw(st.lists(word | whole | alone, max_size=8))))
        assert "".join(pieces(tokenizer, ids)) == decode(tokenizer, ids)


@pytest.mark.parametrize("token_ids", [(), (104, 105)])
def test_finishing_adds_nothing_to_whole_text(byte_tokenizer, token_ids):
    assert pieces(byte_tokenizer, token_ids)[-1] == ""
