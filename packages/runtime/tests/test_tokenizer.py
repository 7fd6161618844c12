from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers
from tokenizers import Tokenizer as Backend

from minivllm_runtime.errors import InvalidParameter, ModelLoadError
from minivllm_runtime.tokenizer import Tokenizer

from .loader.texts import NASTY
from .scripted.byte_level import IM_END, IM_START, byte_level_tokenizer

COVERED_TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=0x1FFFF, exclude_categories=["Cs"]))
"""Without characters that the vocabulary of the default model has no tokens for."""
PLAIN_TEXT = st.text().filter(lambda text: "<|im_" not in text)
CHATML = "{{ bos_token }}{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<|im_end|>{% endfor %}"


class TestEncodeAndDecode:
    @given(text=PLAIN_TEXT)
    def test_one_byte_tokens_are_the_bytes_of_the_text(self, byte_tokenizer, text):
        ids = byte_tokenizer.encode(text)
        assert ids == list(text.encode())
        assert byte_tokenizer.decode(ids) == text

    def test_special_tokens_in_a_text_are_found_and_left_out_again(self, byte_tokenizer):
        ids = byte_tokenizer.encode("a<|im_end|>b")
        assert ids == [97, IM_END, 98]
        assert byte_tokenizer.decode(ids) == "ab"
        assert byte_tokenizer.decode(ids, skip_special_tokens=False) == "a<|im_end|>b"

    def test_unknown_ids_and_cut_characters_decode(self, byte_tokenizer):
        assert byte_tokenizer.decode([97, 99999, 98]) == "ab"
        assert byte_tokenizer.decode(list("😀".encode()[:3])) == "\ufffd"
        assert byte_tokenizer.decode([]) == ""

    @pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
    def test_a_lone_surrogate_is_refused(self, byte_tokenizer, text):
        with pytest.raises(InvalidParameter, match="surrogate"):
            byte_tokenizer.encode(text)

    def test_truncation_and_padding_of_the_file_are_off(self):
        backend = byte_level_tokenizer().backend
        backend.enable_truncation(2)
        backend.enable_padding(length=8)
        assert Tokenizer(backend).encode("abc") == [97, 98, 99]

    def test_threads_may_share_it(self, smollm2_tokenizer):
        expected = [smollm2_tokenizer.encode(text) for text in NASTY]
        with ThreadPoolExecutor(4) as pool:
            for ids in pool.map(lambda _: [smollm2_tokenizer.encode(text) for text in NASTY], range(8)):
                assert ids == expected


class TestSpecialTokens:
    def test_named_ids(self, byte_tokenizer):
        assert byte_tokenizer.bos_token_id == IM_START
        assert byte_tokenizer.eos_token_ids == {IM_END}
        assert byte_tokenizer.special_token_ids == {IM_START, IM_END}

    def test_ids_that_the_model_ends_with_are_added(self):
        backend = byte_level_tokenizer().backend
        tokenizer = Tokenizer(backend, special_tokens={"eos_token": "<|im_end|>"}, eos_token_ids=(3, 5))
        assert tokenizer.eos_token_ids == {3, 5, IM_END}
        assert tokenizer.bos_token_id is None

    def test_only_the_exact_spelling_of_a_special_token_has_its_id(self, byte_tokenizer):
        assert byte_tokenizer.special_token_id("<|im_end|>") == IM_END
        for text in ("a", "", "<|im_end|", "<|im_end|><|im_end|>", " <|im_end|>"):
            assert byte_tokenizer.special_token_id(text) is None

    def test_an_added_token_that_is_not_special_is_text(self):
        backend = byte_level_tokenizer().backend
        backend.add_tokens([AddedToken("<think>", special=False)])
        tokenizer = Tokenizer(backend)
        assert tokenizer.special_token_id("<think>") is None
        assert tokenizer.decode(tokenizer.encode("<think>")) == "<think>"

    def test_a_named_token_becomes_special_and_keeps_how_it_matches(self):
        backend = byte_level_tokenizer().backend
        backend.add_tokens([AddedToken("<pad>", special=False, rstrip=True)])
        tokenizer = Tokenizer(
            backend, special_tokens={"pad_token": "<pad>", "bos_token": "z", "eos_token": "<new>"}
        )
        pad, new = tokenizer.special_token_id("<pad>"), tokenizer.special_token_id("<new>")
        assert tokenizer.special_token_id("z") == tokenizer.bos_token_id == ord("z")
        assert tokenizer.encode("<pad>   x<new>") == [pad, ord("x"), new]
        assert tokenizer.eos_token_ids == {new}

    def test_ids_end_behind_the_last_added_token(self):
        tokenizer = byte_level_tokenizer()
        assert tokenizer.vocab_size == 258
        assert Tokenizer(tokenizer.backend, special_tokens={"pad_token": "<pad>"}).vocab_size == 259


class TestTokenBytes:
    @given(text=COVERED_TEXT)
    def test_bytes_joined_are_the_text(self, smollm2_tokenizer, text):
        ids = smollm2_tokenizer.encode(text)
        assert b"".join(map(smollm2_tokenizer.token_bytes, ids)) == text.encode()

    def test_a_part_of_a_character_keeps_its_bytes(self, byte_tokenizer):
        assert byte_tokenizer.token_bytes(0xF0) == b"\xf0"
        assert byte_tokenizer.token_bytes(IM_END) == b"<|im_end|>"
        assert byte_tokenizer.token_bytes(99999) == b""

    def test_sentencepiece_pieces_and_byte_tokens(self, byte_fallback_tokenizer):
        piece = byte_fallback_tokenizer.backend.token_to_id
        expected = {
            "▁hello": b" hello",
            "▁▁": b"  ",
            "<0x0A>": b"\n",
            "<0xFF>": b"\xff",
            "<0x4": b"<0x4",
            "</s>": b"</s>",
        }
        for token, data in expected.items():
            assert byte_fallback_tokenizer.token_bytes(piece(token)) == data

    def test_words_of_another_kind_of_tokenizer(self):
        tokenizer = Tokenizer(Backend(models.WordLevel({"a": 0, "ß": 1}, unk_token="a")))
        assert tokenizer.token_bytes(1) == "ß".encode()


class TestLongestToken:
    @given(text=st.one_of(COVERED_TEXT, st.sampled_from(NASTY)))
    def test_no_text_has_fewer_tokens_than_the_bound_says(self, smollm2_tokenizer, text):
        assert len(smollm2_tokenizer.encode(text)) * smollm2_tokenizer.longest_token_bytes >= len(
            text.encode()
        )

    def test_it_is_the_longest_spelling(self, smollm2_tokenizer, byte_tokenizer):
        longest = max(len(smollm2_tokenizer.token_bytes(i)) for i in range(smollm2_tokenizer.vocab_size))
        assert smollm2_tokenizer.longest_token_bytes == longest
        assert byte_tokenizer.longest_token_bytes == len("<|im_start|>")

    def test_composed_characters_count_as_they_were_written(self):
        backend = byte_level_tokenizer(["한"]).backend
        backend.normalizer = normalizers.NFC()
        tokenizer = Tokenizer(backend)
        text = "\u1112\u1161\u11ab" * 10
        assert len(tokenizer.encode(text)) * tokenizer.longest_token_bytes >= len(text.encode())

    def test_there_is_no_bound_where_a_token_swallows_any_text(self):
        striding = byte_level_tokenizer().backend
        striding.add_special_tokens([AddedToken("<mask>", lstrip=True)])
        shrinking = byte_level_tokenizer().backend
        shrinking.normalizer = normalizers.Replace(" ", "")
        lowercase = byte_level_tokenizer().backend
        lowercase.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Strip()])
        fusing = Backend(models.BPE({"<unk>": 0, "a": 1}, [], unk_token="<unk>", fuse_unk=True))
        fusing.decoder = decoders.ByteFallback()
        for backend in (striding, shrinking, lowercase, fusing):
            assert Tokenizer(backend).longest_token_bytes is None


class TestChat:
    MESSAGES = ({"role": "user", "content": "hé"},)

    def test_the_template_alone_writes_special_tokens(self):
        backend = byte_level_tokenizer().backend
        special = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
        tokenizer = Tokenizer(backend, special_tokens=special, chat_template=CHATML)
        ids = tokenizer.encode(tokenizer.render_chat(self.MESSAGES), add_special_tokens=False)
        assert ids == [IM_START, *"user: hé".encode(), IM_END]

    def test_no_template_and_no_messages_are_refused(self, byte_tokenizer):
        with pytest.raises(InvalidParameter, match="no chat template"):
            byte_tokenizer.render_chat(self.MESSAGES)
        with pytest.raises(InvalidParameter, match="at least one message"):
            byte_tokenizer.render_chat([])

    def test_tools_reach_a_template_that_knows_them_and_are_refused_by_one_that_does_not(self):
        backend = byte_level_tokenizer().backend
        template = "{% if tools %}{{ tools | tojson }}{% endif %}{{ messages[0].content }}"
        knowing = Tokenizer(backend, chat_template=template)
        assert knowing.supports_tools
        assert knowing.render_chat(self.MESSAGES, [{"name": "f"}]) == '[{"name": "f"}]hé'
        ignoring = Tokenizer(backend, chat_template=CHATML)
        assert not ignoring.supports_tools
        with pytest.raises(InvalidParameter, match="does not know tools"):
            ignoring.render_chat(self.MESSAGES, [{"name": "f"}])

    def test_a_damaged_template_is_refused_at_load(self):
        with pytest.raises(ModelLoadError, match="chat template is damaged"):
            Tokenizer(byte_level_tokenizer().backend, chat_template="{% if %}")
