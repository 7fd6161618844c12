"""A byte-level tokenizer with one-byte tokens, as scripted models want it."""

from collections.abc import Sequence

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from minivllm_runtime.byte_level import UNICODE_TO_BYTE
from minivllm_runtime.tokenizer import Tokenizer

IM_END = 256
IM_START = 257
FIRST_EXTRA = 258


def byte_level_tokenizer(extra_tokens: Sequence[str | bytes] = (), *, has_bos: bool = True) -> Tokenizer:
    """Byte-level BPE without merges.

    Ids 0-255 are the bytes themselves; 256 is <|im_end|>, which ends a sequence; 257 is <|im_start|>, which
    begins one if `has_bos`; then come `extra_tokens`, which no text encodes to.
    """
    chars = {byte: char for char, byte in UNICODE_TO_BYTE.items()}
    vocab = {char: byte for byte, char in chars.items()} | {"<|im_end|>": IM_END, "<|im_start|>": IM_START}
    for token_id, text in enumerate(extra_tokens, start=FIRST_EXTRA):
        data = text.encode() if isinstance(text, str) else text
        vocab["".join(chars[byte] for byte in data)] = token_id
    backend = Backend(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|im_end|>", "<|im_start|>"])
    special_tokens = {"eos_token": "<|im_end|>"}
    if has_bos:
        special_tokens["bos_token"] = "<|im_start|>"
    return Tokenizer(backend, special_tokens=special_tokens)
