"""Text from token ids that arrive one by one."""

import codecs
import re
from collections.abc import Sequence

from minivllm_runtime.tokenizer import Tokenizer

REPLACEMENT_CHARACTER = "\ufffd"
_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")


class IncrementalDetokenizer:
    """Joins the bytes of tokens and gives out whole characters as soon as they are whole.

    The pieces joined equal decoding all ids at once. A character that the ids leave unfinished, or bytes that
    are no character, become U+FFFD as they do there: one for each broken sequence in byte-level vocabularies,
    one for each byte in vocabularies with byte-fallback tokens. (One difference is wanted: byte-fallback
    decoders give up every byte of an uninterrupted run of byte tokens if any of it is broken; here the whole
    characters of such a run stay, for they were shown before the broken byte was known.)

    The prompt is no part of the text, also where it ends inside a character.

    Args:
        tokenizer: Gives the bytes of a token.
        hidden_token_ids: Ids that add nothing to the text, such as special tokens.
    """

    def __init__(self, tokenizer: Tokenizer, *, hidden_token_ids: frozenset[int] = frozenset()) -> None:
        self._tokenizer = tokenizer
        self._hidden_token_ids = hidden_token_ids
        self._counts_bytes = tokenizer.backend.token_to_id("<0x00>") is not None
        # Bytes that are no character come out as one lone surrogate each under "surrogateescape".
        errors = "surrogateescape" if self._counts_bytes else "replace"
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors)
        self._at_start = True

    def push(self, token_ids: Sequence[int]) -> str:
        """Take the next ids; return the text they complete, which may be empty."""
        visible = [token_id for token_id in token_ids if token_id not in self._hidden_token_ids]
        return self._decode(b"".join(map(self._bytes, visible)))

    def finish(self) -> str:
        """Return what is left at the end: nothing, or U+FFFD for an unfinished character."""
        return self._decode(b"", final=True)

    def _bytes(self, token_id: int) -> bytes:
        data = self._tokenizer.token_bytes(token_id)
        if self._at_start:
            self._at_start = False
            # SentencePiece decoders drop the space that their encoders put before a text.
            shown = self._tokenizer.decode((token_id,), skip_special_tokens=False).encode()
            data = data[_num_leading_spaces(data) - _num_leading_spaces(shown) :]
        return data

    def _decode(self, data: bytes, *, final: bool = False) -> str:
        text = self._utf8.decode(data, final)
        return _ESCAPED_BYTE.sub(REPLACEMENT_CHARACTER, text) if self._counts_bytes else text


def _num_leading_spaces(text: bytes) -> int:
    return len(text) - len(text.lstrip(b" "))
