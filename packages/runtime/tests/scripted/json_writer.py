"""A writer that knows nothing but a grammar: what it writes shows what the grammar lets through."""

import random

from minivllm_runtime.sampling.grammar_masks import Grammar, GrammarState, allowed_words

from .byte_level import IM_END, byte_level_tokenizer

NUM_IDS = byte_level_tokenizer().vocab_size
"""Of the tokenizer whose grammars it follows: one token per byte."""

_WEIGHTS = dict.fromkeys(range(NUM_IDS), 1.0)
_WEIGHTS |= dict.fromkeys(b" \n\r\t", 0.02)
_WEIGHTS |= dict.fromkeys(b"[{,", 3.0) | dict.fromkeys(b'"]}', 8.0)
_WEIGHTS |= dict.fromkeys(range(0x80, 0x100), 0.05)


def written_text(grammar: Grammar, seed: int, most_bytes: int = 300) -> str | None:
    """A text that a grammar allows, biased to short ones.

    Returns:
        None if it is not complete by then.
    """
    rng = random.Random(seed)
    state = GrammarState(grammar)
    text = bytearray()
    while len(text) < most_bytes:
        (words,) = allowed_words([state], NUM_IDS).tolist()
        assert state.error is None
        allowed = [byte for byte in range(NUM_IDS) if words[byte // 32] >> (byte % 32) & 1]
        if IM_END in allowed and (len(allowed) == 1 or rng.random() < 0.5):
            return text.decode()
        allowed = [byte for byte in allowed if byte != IM_END]
        (byte,) = rng.choices(allowed, [_WEIGHTS[byte] for byte in allowed])
        state.advance(byte)
        text.append(byte)
    return None
