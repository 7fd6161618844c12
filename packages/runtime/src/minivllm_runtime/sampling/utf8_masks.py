"""Which ids keep the bytes of an output well-formed UTF-8 (RFC 3629, section 4).

Tokens may begin and end within a character, and a grammar may let in bytes that are no character: xgrammar 0.2.9
compares some classes of characters by their first byte only, takes surrogates for characters, and compares names byte
by byte.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

Awaited = tuple[tuple[int, int], ...]
"""The lowest and highest value of each byte that is missing to a character; empty between characters."""

BETWEEN_CHARACTERS: Awaited = ()
BITS_PER_WORD = 32
_TAIL = (0x80, 0xBF)
_AFTER_LEADS: dict[range, Awaited] = {
    range(0x80): (),
    range(0xC2, 0xE0): (_TAIL,),
    range(0xE0, 0xE1): ((0xA0, 0xBF), _TAIL),
    range(0xE1, 0xED): (_TAIL, _TAIL),
    range(0xED, 0xEE): ((0x80, 0x9F), _TAIL),
    range(0xEE, 0xF0): (_TAIL, _TAIL),
    range(0xF0, 0xF1): ((0x90, 0xBF), _TAIL, _TAIL),
    range(0xF1, 0xF4): (_TAIL, _TAIL, _TAIL),
    range(0xF4, 0xF5): ((0x80, 0x8F), _TAIL, _TAIL),
}
_AFTER_LEAD = {byte: awaited for leads, awaited in _AFTER_LEADS.items() for byte in leads}


class Utf8Masks:
    """The ids of a vocabulary that may follow, whatever is missing to the last character.

    Args:
        vocabulary: The bytes of each id; ids that are no part of an output have none.
    """

    def __init__(self, vocabulary: Sequence[bytes]) -> None:
        self._fragments = {
            token_id: data for token_id, data in enumerate(vocabulary) if not _is_whole_text(data)
        }
        states = {awaited[done:] for awaited in _AFTER_LEADS.values() for done in range(len(awaited) + 1)}
        self._words = {state: self._words_for(state, len(vocabulary)) for state in states}

    def words(self, awaited: Awaited) -> Tensor:
        """The ids that may follow, as `_words_of` gives them; not to be changed."""
        return self._words[awaited]

    def after(self, awaited: Awaited, token_id: int) -> Awaited | None:
        """What is missing after an id; None if the id may not follow."""
        data = self._fragments.get(token_id)
        if data is None:
            return None if awaited else BETWEEN_CHARACTERS
        return _read(awaited, data)

    def _words_for(self, awaited: Awaited, num_ids: int) -> Tensor:
        """Whole texts may follow between characters alone; fragments are few."""
        goes_on = [i for i, data in self._fragments.items() if _read(awaited, data) is not None]
        if awaited:
            return _words_of(goes_on, num_ids)
        return ~_words_of(self._fragments.keys() - set(goes_on), num_ids)


def _is_whole_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _read(awaited: Awaited, data: bytes) -> Awaited | None:
    """What is missing after some bytes; None if they are no UTF-8 there."""
    now: Awaited | None = awaited
    for byte in data:
        if now:
            lowest, highest = now[0]
            now = now[1:] if lowest <= byte <= highest else None
        else:
            now = _AFTER_LEAD.get(byte)
        if now is None:
            return None
    return now


def _words_of(ids: Iterable[int], num_ids: int) -> Tensor:
    """Some of `num_ids` ids: [ceil(num_ids / 32)] int32, bit i of word w is id 32w + i."""
    places = torch.tensor(sorted(ids), dtype=torch.int64)
    bits = torch.ones_like(places, dtype=torch.int32) << (places % BITS_PER_WORD).int()
    words = torch.zeros(-(-num_ids // BITS_PER_WORD), dtype=torch.int32)
    return words.index_add_(0, places // BITS_PER_WORD, bits)
