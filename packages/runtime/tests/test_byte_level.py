from tokenizers import decoders, pre_tokenizers

from minivllm_runtime.byte_level import UNICODE_TO_BYTE, spelled_bytes


def test_every_byte_has_one_character_of_the_librarys_alphabet():
    assert set(UNICODE_TO_BYTE) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(UNICODE_TO_BYTE.values()) == list(range(256))


def test_characters_stand_for_the_bytes_that_the_library_decodes():
    decoder = decoders.ByteLevel()
    by_byte = {byte: character for character, byte in UNICODE_TO_BYTE.items()}
    for text in ("a\n ~¡", "é\x7f\xad", "日本😀"):
        assert decoder.decode([by_byte[byte] for byte in text.encode()]) == text


def test_a_spelling_stands_for_the_bytes_of_its_characters():
    for character, byte in UNICODE_TO_BYTE.items():
        assert spelled_bytes(f"a{character}{character}") == bytes([97, byte, byte])


def test_a_spelling_with_another_character_stands_for_no_bytes():
    for code_point in (*range(512), 0x20AC, 0x1F600):
        if chr(code_point) not in UNICODE_TO_BYTE:
            assert spelled_bytes(f"a{chr(code_point)}") is None
