"""Tokenizers whose text is known by heart, shared by all tests of this package."""

from collections.abc import Callable

import pytest

from minivllm_runtime.tokenizer import Tokenizer

from .scripted.byte_level import byte_level_tokenizer
from .scripted.sentencepiece import sentencepiece_tokenizer


@pytest.fixture(scope="session")
def make_byte_tokenizer() -> Callable[..., Tokenizer]:
    """Builds byte-level tokenizers with extra tokens: `scripted.byte_level.byte_level_tokenizer`."""
    return byte_level_tokenizer


@pytest.fixture(scope="session")
def byte_tokenizer() -> Tokenizer:
    """One token per byte, id = byte; 256 is <|im_end|> (end of sequence), 257 is <|im_start|> (BOS)."""
    return byte_level_tokenizer()


@pytest.fixture(scope="session")
def byte_fallback_tokenizer() -> Tokenizer:
    """A small SentencePiece-type vocabulary with byte-fallback tokens: `scripted.sentencepiece`."""
    return sentencepiece_tokenizer()


@pytest.fixture(scope="session")
def smollm2_tokenizer() -> Tokenizer:
    """The real tokenizer of the default model."""
    from minivllm_runtime.loader.checkpoint import open_checkpoint  # it imports torch, which few tests need

    return open_checkpoint("smollm2").load_tokenizer()
