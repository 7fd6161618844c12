"""A tokenizer of single bytes, some longer pieces and three special tokens."""

from collections.abc import Sequence

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from minivllm_runtime.byte_level import UNICODE_TO_BYTE
from minivllm_runtime.tokenizer import Tokenizer

EOS, BOS, IM_END = 256, 257, 258
SPECIAL_TOKENS = {"<|endoftext|>": EOS, "<|begin|>": BOS, "<|im_end|>": IM_END}
PIECES = ("one t", "wo th", "ree", "MN", "PQ", "ab", "cdef", "\ufffd")
LONG_PIECE = "0123456789" * 500

_BYTE_TO_UNICODE = {byte: char for char, byte in UNICODE_TO_BYTE.items()}
_PIECE_IDS = {piece: token_id for token_id, piece in enumerate((*PIECES, LONG_PIECE), start=IM_END + 1)}


def ids_of(*parts: str | int) -> list[int]:
    """Token ids: a piece's own, one per byte of any other text, a number as it is."""
    ids: list[int] = []
    for part in parts:
        if isinstance(part, int):
            ids.append(part)
        elif part in _PIECE_IDS:
            ids.append(_PIECE_IDS[part])
        else:
            ids.extend(part.encode())
    return ids


CONTENTS_ONLY = "{% for message in messages %}{{ message.content }}{% endfor %}"
"""A chat template under which a conversation of one message "a" is one token."""


def byte_tokenizer(
    pieces: Sequence[str] = PIECES, *, has_bos: bool = True, chat_template: str | None = CONTENTS_ONLY
) -> Tokenizer:
    """Texts encode to one token per byte: no merge leads to a longer piece."""
    vocab = {char: byte for byte, char in _BYTE_TO_UNICODE.items()} | SPECIAL_TOKENS
    vocab |= {
        "".join(_BYTE_TO_UNICODE[byte] for byte in piece.encode()): _PIECE_IDS[piece] for piece in pieces
    }
    backend = Backend(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(SPECIAL_TOKENS))
    special_tokens = {"eos_token": "<|endoftext|>"} | ({"bos_token": "<|begin|>"} if has_bos else {})
    return Tokenizer(backend, special_tokens=special_tokens, chat_template=chat_template)
