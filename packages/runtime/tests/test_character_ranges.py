import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_runtime.character_ranges import atom_ranges, other_than, writable

EVERYTHING = [(0, 0x10FFFF)]
ranges = st.lists(
    st.tuples(st.integers(0, 40) | st.integers(0x10FFC0, 0x10FFE0), st.integers(0, 31)).map(
        lambda place: (place[0], sum(place))
    )
)


def members(of):
    """The code points, which must be few."""
    return {code for first, last in of for code in range(first, last + 1)}


def in_python(atom):
    """The ASCII characters that Python's `re` finds in an atom."""
    return {code for code in range(128) if re.fullmatch(atom, chr(code), re.ASCII)}


@given(ranges)
def test_others_are_all_that_is_not_in_it(some):
    others = other_than(some)
    assert sum(last + 1 - first for first, last in others) == 0x110000 - len(members(some))
    assert not any(first <= code <= last for code in members(some) for first, last in others)
    assert list(others) == sorted(others)


def test_writable_is_what_stands_in_a_json_string_as_itself():
    apart = [(0x20, 0x21), (0x23, 0x5B), (0x5D, 0xD7FF), (0xE000, 0x10FFFF)]
    assert writable(EVERYTHING) == apart
    assert writable([(0x61, 0x61), (0x22, 0x22), (0x41, 0x42)]) == [(0x41, 0x42), (0x61, 0x61)]
    assert not writable([(0, 0x1F), (0x5C, 0x5C), (0xD800, 0xDFFF)])


@pytest.mark.parametrize(
    ("atom", "character"),
    [
        ("a", "a"),
        ("é", "é"),
        ("]", "]"),
        ("\\]", "]"),
        ("\\-", "-"),
        ("\\_", "_"),
        ("\\é", "é"),
        ("\\/", "/"),
        ("\\n", "\n"),
        ("\\0", "\0"),
        ("\\cJ", "\n"),
        ("\\cj", "\n"),
        ("\\x41", "A"),
        ("\\u20aC", "€"),
        ("\\u{1F600}", "😀"),
        ("\\u{00000061}", "a"),
        ("\\ud83d\\ude00", "😀"),
        ("\\uDBFF\\uDFFF", "\U0010ffff"),
    ],
)
def test_an_atom_of_one_character(atom, character):
    assert list(atom_ranges(atom)) == [(ord(character), ord(character))]
    assert members(atom_ranges(f"[{atom}]")) == {ord(character)}


@pytest.mark.parametrize(
    "atom",
    [
        *(rf"\{name}" for name in "dDwWS"),
        *(
            "[a-f]",
            "[^a-f]",
            "[a-]",
            "[-a]",
            "[a-c-e]",
            "[--0]",
            "[\\]x]",
            "[^^]",
            "[\\^]",
            "[.$*]",
            "[\\b]",
            "[\\d\\-x]",
        ),
        *("[\\w.-]", "[^\\d\\s]", "[\\x00-\\x7f]", "[^\\W_]"),
    ],
)
def test_an_atom_is_what_it_is_in_python(atom):
    ascii_alone = [(first, min(last, 127)) for first, last in atom_ranges(atom) if first < 128]
    assert members(ascii_alone) == in_python(atom)


def test_what_python_reads_otherwise():
    assert atom_ranges("[^]") == EVERYTHING
    assert list(atom_ranges("[]")) == []
    assert members(atom_ranges("[\\w-.]")) == members(atom_ranges("\\w")) | {*b"-."}
    assert members(atom_ranges("[[:alpha:]")) == {*b"[:alph"}
    assert {0xA0, 0x2028, 0xFEFF, 0xB} < members(atom_ranges("\\s"))
    assert members(other_than(atom_ranges("."))) == {0xA, 0xD, 0x2028, 0x2029}
    assert members(atom_ranges("[\\ud83d\\ude00-\\ud83d\\ude4f]")) == {*range(0x1F600, 0x1F650)}


@pytest.mark.parametrize(
    "atom",
    [
        "\\e",
        "\\q",
        "\\b",
        "\\B",
        "\\p",
        "\\k",
        "\\1",
        "\\01",
        "\\c",
        "\\x",
        "\\u",
        "\\",
        "\\u{110000}",
        "[\\e]",
        "[\\u]",
    ],
)
def test_an_escape_without_a_meaning_is_named(atom):
    with pytest.raises(ValueError, match=r"escape '.*' is not supported"):
        atom_ranges(atom)


@pytest.mark.parametrize("atom", ["[b-a]", "[a--]", "[\\u{1f600}-é]"])
def test_a_range_out_of_order_is_named(atom):
    with pytest.raises(ValueError, match=r"range '.*' are out of order"):
        atom_ranges(atom)
