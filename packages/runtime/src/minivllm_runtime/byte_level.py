"""The alphabet of byte-level BPE: a printable character for each byte, so that vocabularies can be text.

Bytes that print as one visible Latin-1 character stand for themselves; the others, in ascending order, are
given the code points from 256 on. From GPT-2's `encoder.py`, https://github.com/openai/gpt-2.
"""

from collections.abc import Mapping

_VISIBLE = (*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1))
_HIDDEN = tuple(byte for byte in range(256) if byte not in _VISIBLE)

UNICODE_TO_BYTE: Mapping[str, int] = {chr(byte): byte for byte in _VISIBLE} | {
    chr(256 + place): byte for place, byte in enumerate(_HIDDEN)
}
"""Character of a token's spelling to the byte that it stands for."""

_NO_BYTE = 256  # which Latin-1 refuses
_TO_BYTE = dict.fromkeys(range(256), _NO_BYTE) | {
    ord(character): byte for character, byte in UNICODE_TO_BYTE.items()
}


def spelled_bytes(token: str) -> bytes | None:
    """The bytes that a token's spelling stands for; None if a character of it stands for none."""
    try:
        return token.translate(_TO_BYTE).encode("latin-1")
    except UnicodeEncodeError:
        return None
