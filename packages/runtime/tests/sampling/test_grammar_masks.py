"""Outputs that follow a grammar over tokens that begin and end within characters."""

import json
import random
import re
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minivllm_runtime.engine.grammar_compiler import GrammarCompiler
from minivllm_runtime.json_schema import schema_text
from minivllm_runtime.sampling.grammar_masks import GrammarState, allowed_words

from ..scripted.byte_level import IM_END, byte_level_tokenizer

CUT = "22c3 a9e2 82ac e080 e0a0 eda0 a080 61ed 80ed f080 f09f 9f9880 80f090 f490 f48fbf 8022 ff"
FRAGMENTS = ["é€😀", "ab", '",', ' "', "é", *map(bytes.fromhex, CUT.split())]
TOKENIZER = byte_level_tokenizer(FRAGMENTS)
NUM_IDS = TOKENIZER.vocab_size
ENDS = [IM_END, *b'"}]:0']
TYPES = {"string": str, "array": list, "object": dict}
KEYS = {"aé": {"const": 1}, "a€": {"type": "string", "maxLength": 2}, "😀": {"enum": ["é😀", "€", "a"]}}
SCHEMAS = [
    {"type": "string"},
    {"type": "string", "maxLength": 3},
    {"type": "array", "items": {"enum": ["é😀", "€", "éa", 1]}, "maxItems": 3},
    {"type": "object", "const": {"é": "\ud7ff\ue000"}},
    {"type": "object", "properties": KEYS, "additionalProperties": {"type": "integer"}},
    {"type": "object", "properties": KEYS, "additionalProperties": False},
    {"type": "object", "patternProperties": {"^[^x]+$": {"type": "string", "maxLength": 1}}},
    {"type": "object", "propertyNames": {"type": "string", "pattern": "^[^x]{2}$"}},
]
PATTERNS = [
    "^[^b]{0,3}$",
    "^.{2}$",
    "^[^é]{3}$",
    "^é.$",
    r"^(?:\W😀)+$",
    r"^(?:[^a]|b)+$",
    r"^[^\u00e9]{1,3}$",
    r"^[\u0000-\uffff]{3}$",
    r"^[\u00c3-\u20ac]{2,3}$",
    r"^[^\u0800-\u0fff]{2}$",
    r"^[^\u{10000}-\u{3ffff}]{2}$",
    r"^[^\ud800-\udfff]{2}$",
    r"^[^\u0000-\ud7ff]{2}$",
    r"^[\ud800-\ue000]{2}$",
    r"^(?:\ud83d\ude00|\u00e9)$",
]
NO_UTF8 = {
    "overlong, two bytes": "c0 80",
    "overlong, three bytes": "e0 80 80",
    "overlong, four bytes": "f0 80 80 80",
    "a surrogate": "ed a0 80",
    "past the last character": "f4 90 80 80",
    "unfinished": "c3 22",
}
characters = st.characters(codec="utf-8", min_codepoint=0x20, exclude_characters='"\\b')
BORDERS = "7f 80 7ff 800 cfff d000 d7ff d800 dfff e000 ffff 10000 fffff 100000"
any_code_point = st.integers(0x20, 0x10FFFF) | st.sampled_from([int(each, 16) for each in BORDERS.split()])
ranges = st.lists(st.tuples(any_code_point, any_code_point).map(sorted), min_size=1, max_size=3)


def is_character(code_point):
    return not 0xD800 <= code_point <= 0xDFFF and chr(code_point) not in '"\\'


@cache
def compiler():
    return GrammarCompiler(TOKENIZER, NUM_IDS)


def start(schema):
    return GrammarState(compiler().compile(schema_text(schema)))


def allowed_ids(state):
    (words,) = allowed_words([state], NUM_IDS).tolist()
    return [i for i in range(NUM_IDS) if words[i // 32] >> i % 32 & 1]


def takes(state, ids):
    """Whether each id is allowed when its turn comes; the state goes on as far as they are."""
    for token_id in ids:
        if token_id not in allowed_ids(state):
            return False
        state.advance(token_id)
        assert state.error is None
    return True


def write(schema, seed, patience=60):
    """The bytes of ids chosen at random, among fragments as often as among bytes; it hurries to its end at last."""
    choose = random.Random(seed)
    state = start(schema)
    output = b""
    for _ in range(10 * patience):
        allowed = allowed_ids(state)
        assert state.error is None, output
        unusual = [i for i in allowed if i >= 0x7F]
        token_id = choose.choice(unusual if unusual and choose.random() < 0.5 else allowed)
        if len(output) > patience or token_id == IM_END:
            token_id = next((i for i in ENDS if i in allowed), token_id)
        if token_id == IM_END:
            return output
        state.advance(token_id)
        output += TOKENIZER.token_bytes(token_id)
    raise AssertionError(f"no end: {output!r}")


@settings(max_examples=300)
@given(st.sampled_from(SCHEMAS), st.integers(0, 2**32))
def test_an_output_is_json_in_utf8(schema, seed):
    assert isinstance(json.loads(write(schema, seed).decode()), TYPES[schema["type"]])


@settings(max_examples=300)
@given(st.sampled_from(PATTERNS), st.integers(0, 2**32))
def test_a_string_follows_its_pattern(pattern, seed):
    text = json.loads(write({"type": "string", "pattern": pattern}, seed).decode())
    assert re.fullmatch(re.sub(r"\\u\{(.*?)\}", lambda code: f"\\U{code[1]:0>8}", pattern), text, re.ASCII)


@pytest.mark.parametrize("wrong", NO_UTF8.values(), ids=NO_UTF8)
@pytest.mark.parametrize(
    "limits", [{}, {"maxLength": 3}, {"pattern": "^[^b]{0,3}$"}, {"pattern": "."}], ids=str
)
def test_bytes_that_are_no_character_are_not_allowed(limits, wrong):
    assert not takes(start({"type": "string", **limits}), b'"' + bytes.fromhex(wrong))


def test_a_name_that_begins_like_another_is_in_utf8():
    schema = {"type": "object", "properties": KEYS, "additionalProperties": {"type": "integer"}}
    assert not takes(start(schema), b'{"a\xc3"')
    assert takes(start(schema), '{"aè": 1, "é": 2}'.encode())


def test_a_character_may_be_cut_into_tokens():
    ids = [
        ord('"'),
        *(TOKENIZER.backend.token_to_id(token) for token in ("Ã©âĤ¬ðŁĺĢ", "ðŁ")),
        0x98,
        0x80,
        ord('"'),
        IM_END,
    ]
    assert takes(start({"type": "string", "maxLength": 4}), ids)


@given(st.sampled_from([{}, {"maxLength": 1}, {"pattern": "."}, {"pattern": "^[^b]$"}]), characters)
def test_every_character_can_be_written(limits, character):
    assert takes(start({"type": "string", **limits}), f'"{character}"'.encode())


@settings(max_examples=200)
@given(st.booleans(), ranges, characters | any_code_point.filter(is_character).map(chr))
def test_a_class_has_the_characters_that_it_names(is_negated, bounds, character):
    named = "".join(rf"\u{{{first:x}}}-\u{{{last:x}}}" for first, last in bounds)
    schema = {"type": "string", "pattern": f"^[{'^' * is_negated}{named}]$"}
    is_in = any(first <= ord(character) <= last for first, last in bounds) != is_negated
    assert takes(start(schema), f'"{character}"'.encode()) == is_in
