"""Outputs that follow a grammar over tokens that begin and end within characters."""

import json
import random
import re
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minivllm_runtime.engine.grammar_compiler import GrammarCompiler
from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.json_schema import schema_text
from minivllm_runtime.sampling.grammar_masks import GrammarState, allowed_words

from ..scripted.byte_level import IM_END, byte_level_tokenizer
from .expressions import expressions

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
USUAL_PATTERNS = {
    r"^\d{4}-\d{2}-\d{2}$": ("2024-02-30", "2024-2-30"),
    r"\d{3}-\d{4}": ("555-0100", "5550100"),
    r"^[\w.+-]+@[\w-]+\.[\w.-]+$": ("a.b+c@d-e.org", "a@b"),
    r"^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$": ("0" * 8 + "-0000-4000-a000-" + "f" * 12, "0" * 8),
    r'[^"]*': ("it's, 한 ok!", '"'),
    r".{0,10}": ("ten chars!", "more than ten"),
    r"\w+": ("a_B9", "é"),
    r"^(a|b)+$": ("abba", ""),
    r"^v?\d+(\.\d+)*(-[a-z]+)?$": ("v1.20-rc", "1rc"),
    r"^[a-z]{2}(-[A-Z]+)?$": ("en-US", "enUS"),
    r"^colou?r|colo$": ("color", "colorr"),
    r"^https?://[^\s/]+(/\S*)?$": ("https://example.org/a?b=c", "http://a b"),
    r"^(?<year>\d\d)/(?:0[1-9]|1[0-2])$": ("99/12", "99/13"),
    r"^\[[^\]]*]$": ("[a, b]", "[a]]"),
    r"^{.*}$": ("{x}", "x"),
    r"^#?([a-fA-F0-9]{6}|[a-fA-F0-9]{3})$": ("#C0FFEE", "#C0FF"),
    r"^[A-Z][a-z' -]{1,20}?$": ("O'neill", "o"),
    r"^\ud83d\ude00|\u00e9$": ("😀", "\ufffd"),
    r"^[\ud83d\ude00-\ud83d\ude4f]{2}$": ("😀🙏", "😀"),
    r"^[^\ud800-\udfff]{2}$": ("é😀", "é"),
    r"^[\ud800-\ue000]$": ("\ue000", "\ud7ff"),
    r"^[^\n]+$": ("one line", ""),
    r"^\$\d+\.\d{2}$": ("$9.99", "$9.9"),
}
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
    """The bytes of ids chosen at random, among fragments as often as among bytes; None if it comes to no end."""
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
    return None


@settings(max_examples=300)
@given(st.sampled_from(SCHEMAS), st.integers(0, 2**32))
def test_an_output_is_json_in_utf8(schema, seed):
    assert isinstance(json.loads(write(schema, seed).decode()), TYPES[schema["type"]])


@pytest.mark.parametrize("pattern", USUAL_PATTERNS)
def test_a_usual_pattern_has_the_texts_that_it_names(pattern):
    schema = {"type": "string", "pattern": pattern}
    right, wrong = USUAL_PATTERNS[pattern]
    assert takes(start(schema), [*f'"{right}"'.encode(), IM_END])
    assert not takes(start(schema), [*f'"{wrong}"'.encode(), IM_END])


@settings(max_examples=300)
@given(expressions, st.integers(0, 2**32))
def test_a_string_follows_its_pattern(expression, seed):
    pattern, in_python = expression
    try:
        schema = schema_text({"type": "string", "pattern": pattern})
    except InvalidParameter:
        return  # an atom that no JSON string can have, or an anchor within
    output = write(schema, seed)
    if output is not None:  # a pattern like .*é may go on for long
        text = json.loads(output.decode())
        assert re.search(in_python, text), text


small_expressions = st.recursive(
    st.sampled_from(["a", "b", "c", "[ab]", ""]),
    lambda inner: (
        st.builds(
            "({}){}".format, inner, st.sampled_from(["", "*", "+", "?", "{2}", "{0,2}", "{1,2}", "{2,}"])
        )
        | st.builds("{}{}".format, inner, inner)
        | st.builds("({}|{})".format, inner, inner)
    ),
    max_leaves=6,
)


@settings(max_examples=150, derandomize=True)
@given(small_expressions, st.lists(st.text("abc", max_size=5), min_size=20, max_size=20, unique=True))
@example("(ac?|a)", ["acc", "ac"])
@example("(ab+)?", ["b"])
@example("([ab]|[ab]{1,2})", ["aaa"])
def test_a_pattern_has_the_texts_that_python_finds(pattern, texts):
    grammar = compiler().compile(schema_text({"type": "string", "pattern": pattern}))
    for text in texts:
        ids = [*f'"{text}"'.encode(), IM_END]
        assert takes(GrammarState(grammar), ids) == bool(re.fullmatch(pattern, text)), text


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
    is_in = any(first <= ord(character) <= last for first, last in bounds) != is_negated
    try:
        state = start({"type": "string", "pattern": f"^[{'^' * is_negated}{named}]$"})
    except InvalidParameter:
        assert not is_in  # nor is any other character
    else:
        assert takes(state, f'"{character}"'.encode()) == is_in
