"""A tokenizer of the SentencePiece type: spaces are part of tokens, unknown characters become byte tokens."""

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from minivllm_runtime.tokenizer import Tokenizer

FIRST_BYTE = 3
FIRST_PIECE = FIRST_BYTE + 256
PIECES = ("▁", "▁x", "▁▁", "x", "▁hello", "é", "▁日本", "<0x4")


def sentencepiece_tokenizer() -> Tokenizer:
    """Ids 0-2 are <unk>, <s> and </s>, then come the 256 byte tokens, then `PIECES`."""
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES]
    vocab = {name: token_id for token_id, name in enumerate(names)}
    backend = Backend(models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<unk>"))
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special_tokens = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    return Tokenizer(backend, special_tokens=special_tokens)
