import json
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    AutoTokenizer,
    GPT2Tokenizer,
    LlamaConfig,
    LlamaTokenizer,
    MistralConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2Tokenizer,
    Qwen3Config,
)

from minivllm_runtime.errors import ModelLoadError
from minivllm_runtime.loader import hf_tokenizer
from minivllm_runtime.loader.hf_config import read_hf_config
from minivllm_runtime.loader.hf_tokenizer import load_hf_tokenizer

from .texts import NASTY
from .tiny_models import SHAPE

ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
MERGES = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "w"), ("1", "2"), ("Ġ", "Ġ"), ("Ċ", "Ċ")]
BYTE_LEVEL_VOCAB = {token: i for i, token in enumerate([*ALPHABET, *("".join(pair) for pair in MERGES)])}
PIECES = ["▁", "h", "e", "l", "o", "he", "ll", "hell", "hello", "▁hello"]
SPM_VOCAB = {
    token: i
    for i, token in enumerate(["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *PIECES])
}
SPM_MERGES = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("▁", "hello")]
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
CHAT = [{"role": "user", "content": "hello 日本"}]


def backend(*, digits: bool = False) -> Tokenizer:
    result = Tokenizer(models.BPE(BYTE_LEVEL_VOCAB, MERGES))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    cut = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    result.pre_tokenizer = cut if digits else byte_level
    result.decoder = decoders.ByteLevel()
    return result


def with_bos(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.add_special_tokens(["<s>"])
    bos = ("<s>", tokenizer.token_to_id("<s>"))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[bos])
    return tokenizer


def generic(tokenizer: Tokenizer, **settings: object) -> PreTrainedTokenizerBase:
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **{"eos_token": "</s>"} | settings)


LLAMA = LlamaConfig(**SHAPE)
KINDS = {
    "Llama 3: generic class, BOS": (
        LLAMA,
        lambda: generic(with_bos(backend()), bos_token="<s>", chat_template=TEMPLATE),
    ),
    "generic class, no BOS": (LLAMA, lambda: generic(backend(), bos_token="<s>", chat_template=TEMPLATE)),
    "generic class, more special tokens": (
        LLAMA,
        lambda: generic(backend(), extra_special_tokens=["<|im_end|>", "<|not_special|>"], pad_token="<pad>"),
    ),
    "generic class, digits": (LLAMA, lambda: generic(backend(digits=True))),
    "GPT-2": (LLAMA, lambda: GPT2Tokenizer(vocab=BYTE_LEVEL_VOCAB, merges=MERGES)),
    "Qwen2": (
        Qwen2Config(**SHAPE),
        lambda: Qwen2Tokenizer(
            vocab=BYTE_LEVEL_VOCAB, merges=MERGES, chat_template=TEMPLATE.replace("bos", "eos")
        ),
    ),
    "Qwen3": (Qwen3Config(**SHAPE), lambda: Qwen2Tokenizer(vocab=BYTE_LEVEL_VOCAB, merges=MERGES)),
    "Llama 2: SentencePiece": (
        LLAMA,
        lambda: LlamaTokenizer(vocab=SPM_VOCAB, merges=SPM_MERGES, add_bos_token=True),
    ),
    "Llama 2 without BOS": (LLAMA, lambda: LlamaTokenizer(vocab=SPM_VOCAB, merges=SPM_MERGES)),
    "Mistral": (
        MistralConfig(**SHAPE, sliding_window=None),
        lambda: LlamaTokenizer(
            vocab=SPM_VOCAB, merges=SPM_MERGES, add_bos_token=True, chat_template=TEMPLATE
        ),
    ),
}
NEEDS_TRANSFORMERS = {"Llama 2: SentencePiece", "Llama 2 without BOS", "Mistral"}


def save(folder: Path, kind: str) -> None:
    config, make = KINDS[kind]
    name = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}[config.model_type]
    config.architectures = [f"{name}ForCausalLM"]
    config.save_pretrained(folder)
    make().save_pretrained(folder)


def change_settings(folder: Path, **changes: object) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def check_alike(folder: Path) -> None:
    """Ids, text and special tokens are those of `AutoTokenizer`."""
    reference = AutoTokenizer.from_pretrained(folder)
    tokenizer = load_hf_tokenizer(folder, read_hf_config(folder))
    for text in (*NASTY, "hello", " hello", "<|not_special|>x</s>"):
        ids = reference(text)["input_ids"]
        assert tokenizer.encode(text) == ids, text
        assert tokenizer.decode(ids) == reference.decode(ids, skip_special_tokens=True), text
    assert tokenizer.bos_token_id == reference.bos_token_id
    assert reference.eos_token_id in tokenizer.eos_token_ids
    assert tokenizer.vocab_size == len(reference)
    if reference.chat_template:
        expected = reference.apply_chat_template(CHAT, add_generation_prompt=True)["input_ids"]
        assert tokenizer.encode(tokenizer.render_chat(CHAT), add_special_tokens=False) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_transformers(tmp_path, kind):
    save(tmp_path, kind)
    check_alike(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_is_asked_only_where_it_would_change_the_file(tmp_path, monkeypatch, kind):
    class Asked(Exception):
        pass

    def ask(folder, config):
        raise Asked

    save(tmp_path, kind)
    monkeypatch.setattr(hf_tokenizer, "_load_with_transformers", ask)
    if kind in NEEDS_TRANSFORMERS:
        with pytest.raises(Asked):
            load_hf_tokenizer(tmp_path, read_hf_config(tmp_path))
    else:
        assert load_hf_tokenizer(tmp_path, read_hf_config(tmp_path)).vocab_size > 256


def test_a_class_that_would_rebuild_the_pre_tokenizer_does_so(tmp_path):
    save(tmp_path, "generic class, digits")
    change_settings(tmp_path, tokenizer_class="GPT2Tokenizer")
    check_alike(tmp_path)


def test_a_qwen2_model_with_the_parts_of_another_family(tmp_path):
    save(tmp_path, "Qwen2")
    generic(backend(digits=True)).save_pretrained(tmp_path)
    check_alike(tmp_path)


class TestOlderLayouts:
    """Files as transformers 4 wrote them."""

    def test_added_tokens_in_the_settings(self, tmp_path):
        save(tmp_path, "generic class, no BOS")
        tokens = {
            str(len(BYTE_LEVEL_VOCAB) + i): {
                "content": content,
                "lstrip": False,
                "rstrip": rstrip,
                "normalized": False,
                "single_word": False,
                "special": True,
            }
            for i, (content, rstrip) in enumerate([("</s>", False), ("<s>", False), ("<|im_end|>", True)])
        }
        change_settings(tmp_path, added_tokens_decoder=tokens, tokenizer_class="PreTrainedTokenizerFast")
        (tmp_path / "special_tokens_map.json").write_text("{}")
        check_alike(tmp_path)

    def test_special_tokens_in_a_file_of_their_own(self, tmp_path):
        save(tmp_path, "generic class, no BOS")
        special = {
            "bos_token": {"content": "<|start|>", "lstrip": False, "rstrip": False, "normalized": False}
        }
        (tmp_path / "special_tokens_map.json").write_text(json.dumps(special))
        check_alike(tmp_path)

    def test_tokens_as_objects_and_a_list_of_templates(self, tmp_path):
        save(tmp_path, "generic class, more special tokens")
        change_settings(
            tmp_path,
            eos_token={"__type": "AddedToken", "content": "</s>", "lstrip": False, "normalized": False},
            chat_template=[
                {"name": "tool_use", "template": "x"},
                {"name": "default", "template": TEMPLATE[15:]},
            ],
            tokenizer_class="PreTrainedTokenizerFast",
        )
        check_alike(tmp_path)

    def test_a_setting_that_adds_bos_is_ignored_beside_a_tokenizer_file(self, tmp_path):
        save(tmp_path, "generic class, no BOS")
        change_settings(tmp_path, add_bos_token=True)
        check_alike(tmp_path)


def test_the_template_file_wins_over_the_setting(tmp_path):
    save(tmp_path, "generic class, no BOS")
    assert (tmp_path / "chat_template.jinja").is_file()
    change_settings(tmp_path, chat_template="wrong")
    check_alike(tmp_path)


def test_truncation_and_padding_in_the_file_are_not_applied(tmp_path):
    save(tmp_path, "generic class, no BOS")
    path = str(tmp_path / "tokenizer.json")
    tokenizer = Tokenizer.from_file(path)
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=8, pad_id=0, pad_token=ALPHABET[0])
    tokenizer.save(path)
    check_alike(tmp_path)


def test_end_of_sequence_ids_are_those_of_tokenizer_and_model(tmp_path):
    save(tmp_path, "generic class, no BOS")
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [5, 6]}')
    tokenizer = load_hf_tokenizer(tmp_path, read_hf_config(tmp_path))
    assert tokenizer.eos_token_ids == {5, 6, tokenizer.special_token_id("</s>")}


def test_a_vocabulary_without_a_tokenizer_file(tmp_path):
    save(tmp_path, "GPT-2")
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.json").write_text(json.dumps(BYTE_LEVEL_VOCAB))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(" ".join(pair) for pair in MERGES))
    check_alike(tmp_path)


def test_an_added_token_beyond_the_vocabulary_is_counted(tmp_path):
    tokenizer = backend()
    tokenizer.add_tokens([AddedToken("<think>", special=False)])
    LLAMA.architectures = ["LlamaForCausalLM"]
    LLAMA.save_pretrained(tmp_path)
    generic(tokenizer).save_pretrained(tmp_path)
    check_alike(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", "{"),
        ("tokenizer.json", '{"version": "1.0"}'),
        ("tokenizer_config.json", "["),
        (
            "tokenizer_config.json",
            '{"tokenizer_class": "TokenizersBackend", "added_tokens_decoder": {"x": {}}}',
        ),
        ("tokenizer_config.json", '{"tokenizer_class": "TokenizersBackend", "extra_special_tokens": 5}'),
        ("chat_template.jinja", "{% if %}"),
        ("chat_template.jinja", b"\xff\xfe"),
    ],
)
def test_damaged_files_are_refused_in_one_line(tmp_path, name, content):
    save(tmp_path, "generic class, no BOS")
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ModelLoadError) as caught:
        load_hf_tokenizer(tmp_path, read_hf_config(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_folder_without_tokenizer_is_refused_in_one_line(tmp_path):
    LLAMA.architectures = ["LlamaForCausalLM"]
    LLAMA.save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError, match="cannot load a tokenizer from") as caught:
        load_hf_tokenizer(tmp_path, read_hf_config(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_common_folder_loads_without_transformers(tmp_path):
    save(tmp_path, "Qwen2")
    code = (
        "import sys, pathlib; from minivllm_runtime.loader.hf_config import read_hf_config; "
        "from minivllm_runtime.loader.hf_tokenizer import load_hf_tokenizer; "
        "folder = pathlib.Path(sys.argv[1]); load_hf_tokenizer(folder, read_hf_config(folder)); "
        "print(*{'transformers', 'torch'} & sys.modules.keys())"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == []
