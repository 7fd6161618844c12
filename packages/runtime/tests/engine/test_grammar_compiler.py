import builtins
import json

import pytest

from minivllm_runtime.engine.grammar_compiler import GrammarCompiler
from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.sampling.grammar_masks import GrammarState, allowed_words
from minivllm_runtime.tokenizer import Tokenizer

from ..scripted.byte_level import IM_END, IM_START

OBJECT = '{"type": "object"}'
POINT = '{"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}'


def allowed_after(grammar, text, num_ids):
    """Ids that may follow `text`, given as one-byte tokens."""
    state = GrammarState(grammar)
    for byte in text.encode():
        state.advance(byte)
    assert state.error is None
    (words,) = allowed_words([state], num_ids).tolist()
    return {i for i in range(num_ids) if words[i // 32] >> (i % 32) & 1}


@pytest.fixture
def compiler(byte_tokenizer):
    return GrammarCompiler(byte_tokenizer, byte_tokenizer.vocab_size)


def test_a_grammar_allows_what_the_schema_allows(compiler):
    grammar = compiler.compile(POINT)
    assert allowed_after(grammar, "", 258) == {ord("{")}
    assert allowed_after(grammar, '{"', 258) == {ord("x")}
    assert allowed_after(grammar, '{"x": 1', 258) >= {ord("}"), ord("0")}


def test_the_end_of_the_sequence_is_allowed_at_the_end_alone(compiler):
    grammar = compiler.compile(OBJECT)
    assert allowed_after(grammar, "{}", 258) == {IM_END}
    for text in ("", "{", '{"a": "'):
        assert IM_END not in allowed_after(grammar, text, 258)


def test_special_tokens_are_no_text_of_a_string(compiler):
    inside = allowed_after(compiler.compile(OBJECT), '{"', 258)
    assert inside >= {ord("a"), ord(" "), ord('"')}
    assert not inside & {IM_START, IM_END}


@pytest.mark.parametrize("limits", [{}, {"maxLength": 3}, {"pattern": "."}], ids=str)
def test_what_json_must_escape_is_not_in_strings(compiler, limits):
    grammar = compiler.compile(json.dumps({"type": "string", **limits}))
    inside = allowed_after(grammar, '"', 258)
    assert ord("a") in inside
    assert not inside & set(range(0x20))


def test_white_space_between_tokens_is_free_but_ends(compiler):
    grammar = compiler.compile(POINT)
    assert {ord(" "), ord("\n")} < allowed_after(grammar, "{ ", 258)
    assert allowed_after(grammar, "{" + " " * 20, 258) == {ord('"')}


@pytest.mark.parametrize(
    "schema",
    ['{"type": "nope"}', '{"$ref": "#/nope"}', '{"enum": []}', '{"type": "string", "pattern": "("}'],
)
def test_a_schema_that_cannot_be_followed_is_refused_with_the_reason(compiler, schema):
    with pytest.raises(InvalidParameter, match="json_schema cannot be followed: ") as refusal:
        compiler.compile(schema)
    assert refusal.value.param == "json_schema"
    assert ".cc" not in str(refusal.value)


@pytest.mark.parametrize("keyword", ["anyOf", "allOf"])
def test_a_schema_that_nothing_satisfies_is_refused(compiler, keyword):
    schema = json.dumps({keyword: [{"$ref": "#"}]})
    with pytest.raises(InvalidParameter, match="nothing satisfies it"):
        compiler.compile(schema)
    assert compiler.get(schema) is None


def test_a_grammar_is_compiled_once_and_kept(compiler):
    assert compiler.get(OBJECT) is None
    grammar = compiler.compile(OBJECT)
    assert compiler.get(OBJECT) is compiler.compile(OBJECT) is grammar


def test_a_model_that_cannot_end_is_refused(byte_tokenizer):
    endless = GrammarCompiler(Tokenizer(byte_tokenizer.backend), byte_tokenizer.vocab_size)
    with pytest.raises(InvalidParameter, match="end-of-sequence"):
        endless.compile(OBJECT)


def test_without_the_extra_it_says_what_to_install(compiler, monkeypatch):
    real_import = builtins.__import__

    def without_xgrammar(name, *args, **kwargs):
        if name == "xgrammar":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_xgrammar)
    with pytest.raises(InvalidParameter, match=r"install minivllm-runtime\[grammar\]"):
        compiler.compile(OBJECT)
