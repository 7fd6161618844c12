"""What a schema says that is accepted holds for whatever a model may write: `jsonschema` is the judge."""

import json
from functools import cache
from itertools import permutations, product

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from minivllm_runtime.engine.grammar_compiler import GrammarCompiler
from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.json_schema import schema_text
from minivllm_runtime.sampling.grammar_masks import GrammarState, allowed_words
from minivllm_runtime.schema_keywords import FORMAT_LENGTHS

from ..scripted.byte_level import IM_END, byte_level_tokenizer
from ..scripted.json_writer import NUM_IDS, written_text

seeds = st.integers(0, 2**64 - 1)


@cache
def compiler():
    return GrammarCompiler(byte_level_tokenizer(), NUM_IDS)


def written_values(schema, seed, num_texts=4):
    """Values of some texts that are complete."""
    grammar = compiler().compile(schema_text(schema))
    texts = [written_text(grammar, seed + index) for index in range(num_texts)]
    return [json.loads(text) for text in texts if text is not None]


def assert_valid(value, schema):
    errors = [error.message for error in Draft202012Validator(schema).iter_errors(value)]
    assert not errors, (value, errors)


counts = st.integers(0, 3)
patterns = st.sampled_from(["^a*$", "^[ab]$", "^ab?$", "^(a|bb){1,2}$", "^b{2,3}$", "^.{0,2}$"])
names = st.sampled_from(["a", "b", "ab"])
scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.just(2.5) | st.text("ab", max_size=3)
values = scalars | st.lists(scalars, max_size=2) | st.dictionaries(names, scalars, max_size=2)


def bounds(low, high):
    """Zero to four bounds that leave something."""
    return st.fixed_dictionaries(
        {},
        optional={
            "minimum": st.sampled_from(low),
            "exclusiveMinimum": st.sampled_from(low),
            "maximum": st.sampled_from(high),
            "exclusiveMaximum": st.sampled_from(high),
        },
    )


def ordered(low, high):
    """Two counts under these names, the first not above the second, either perhaps left out."""
    return st.tuples(counts, counts, st.sets(st.sampled_from([low, high]))).map(
        lambda drawn: {
            name: count
            for name, count in zip((low, high), sorted(drawn[:2]), strict=True)
            if name in drawn[2]
        }
    )


def merged(*parts):
    return st.tuples(*parts).map(
        lambda drawn: {keyword: value for part in drawn for keyword, value in part.items()}
    )


def typed(kind, *parts):
    return merged(st.just({"type": kind}), *parts)


def object_with(inner):
    """Objects with names of their own, which others may join."""

    def of(drawn):
        properties, required, others, at_most = drawn
        names_here = sorted(properties)
        needed = names_here[: min(required, len(names_here))]
        return {
            "type": "object",
            "properties": properties,
            "required": needed,
            **({} if others is None else {"additionalProperties": others}),
            **({"minProperties": len(needed) + 1} if others and at_most else {}),
            **({"maxProperties": len(needed) + at_most} if at_most is not None else {}),
        }

    others = st.none() | st.booleans() | inner
    properties = st.dictionaries(names, inner, min_size=1, max_size=3)
    return st.tuples(properties, counts, others, st.none() | counts).map(of)


leaves = (
    st.sampled_from([{}, {"type": "boolean"}, {"type": "null"}, {"type": ["null", "integer"]}])
    | values.map(lambda value: {"const": value})
    | st.lists(values, min_size=1, max_size=3).map(lambda allowed: {"enum": allowed})
    | typed("integer", bounds([-9, -1, 0, 3], [5, 12, 101]))
    | typed("integer", st.sampled_from([{"multipleOf": 3}, {"multipleOf": 7, "minimum": -20, "maximum": 20}]))
    | typed("number", bounds([-9.5, -1, 0, 0.25, 1e-5], [0.5, 1, 12.125, 1e9]))
    | typed("string", ordered("minLength", "maxLength"))
    | typed("string", patterns.map(lambda pattern: {"pattern": pattern}))
    | st.just({"$ref": "#/$defs/part"})
)
accepted_schemas = st.recursive(
    leaves,
    lambda inner: (
        typed("array", inner.map(lambda items: {"items": items}), ordered("minItems", "maxItems"))
        | st.lists(inner, max_size=2).map(lambda prefix: {"type": "array", "prefixItems": prefix})
        | object_with(inner)
        | st.tuples(patterns, inner).map(lambda drawn: {"type": "object", "patternProperties": dict([drawn])})
        | st.tuples(patterns, inner).map(
            lambda drawn: {"propertyNames": {"pattern": drawn[0]}, "additionalProperties": drawn[1]}
        )
        | st.lists(inner, min_size=1, max_size=3).map(lambda options: {"anyOf": options})
        | inner.map(lambda only: {"allOf": [only], "title": "t"})
    ),
    max_leaves=5,
)


@settings(max_examples=150)
@given(accepted_schemas, leaves.filter(lambda leaf: "$ref" not in leaf), seeds)
def test_a_usual_schema_is_accepted_and_enforced(schema, part, seed):
    schema = {**schema, "$defs": {"part": part}}
    for value in written_values(schema, seed):
        assert_valid(value, schema)


def can_be_written(schema, value, *, is_strict=True):
    """Whether a value may be the output, its properties in some order."""
    grammar = compiler().compile(schema_text(schema, is_strict=is_strict))
    return any(follows(grammar, json.dumps(each)) for each in in_any_order(value))


def follows(grammar, text):
    state = GrammarState(grammar)
    for byte in text.encode():
        state.advance(byte)
    (words,) = allowed_words([state], NUM_IDS).tolist()
    return state.error is None and bool(words[IM_END // 32] >> (IM_END % 32) & 1)


def in_any_order(value):
    if isinstance(value, list):
        yield from map(list, product(*map(in_any_order, value)))
    elif isinstance(value, dict):
        for names_here in permutations(value):
            for parts in product(*(in_any_order(value[name]) for name in names_here)):
                yield dict(zip(names_here, parts, strict=True))
    else:
        yield value


def closed(schema):
    """A schema that says what ours mean without saying so: nothing joins the parts of a value that are described."""
    if not isinstance(schema, dict):
        return schema
    told = {
        keyword: value
        if keyword in ("const", "enum")
        else {name: closed(part) for name, part in value.items()}
        if keyword in ("properties", "patternProperties", "$defs")
        else [*map(closed, value)]
        if isinstance(value, list)
        else closed(value)
        for keyword, value in schema.items()
    }
    if schema.keys() & {"properties", "patternProperties"}:
        told.setdefault("additionalProperties", False)
    if "prefixItems" in schema:
        told.setdefault("items", False)
    if schema.keys() & {"propertyNames", "additionalProperties"}:
        told.setdefault("type", "object")
    return told


@settings(max_examples=150)
@given(accepted_schemas, leaves.filter(lambda leaf: "$ref" not in leaf), st.lists(values, max_size=20))
def test_what_a_usual_schema_allows_can_be_written(schema, part, allowed):
    schema = {**schema, "$defs": {"part": part}}
    judge = Draft202012Validator(closed(schema))
    for value in allowed:
        assert can_be_written(schema, value) or not judge.is_valid(value)


@pytest.mark.parametrize(
    "keywords",
    [
        *({}, {"title": "t", "$defs": {"unused": {}}}),
        *({"minItems": 2}, {"maxItems": 2}, {"uniqueItems": True}, {"contains": {"type": "integer"}}),
        *({"minProperties": 1}, {"maxProperties": 2}, {"minProperties": 0, "maxProperties": 9}),
        *({"required": ["a"]}, {"dependentRequired": {"a": ["b"]}}),
    ],
    ids=str,
)
@pytest.mark.parametrize("types", ["array", "object", ["array", "object", "null"]], ids=str)
def test_parts_that_nothing_describes_may_be_any(keywords, types):
    schema = {"anyOf": [{"type": types, **keywords}]}
    for kind, value in (("array", [1, "a"]), ("object", {"a": 1, "b": "x"})):
        if kind in types:
            assert can_be_written(schema, value, is_strict=False)


def any_keywords(inner):
    """Schemas of keywords thrown together, of which many are refused."""
    part = inner | st.booleans()
    parts = st.lists(inner, min_size=1, max_size=2)
    types = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
    number = st.sampled_from([-3, 0, 0.5, 1, 2, 7])
    keywords = {
        "type": types | st.lists(types, min_size=1, max_size=3, unique=True),
        "$ref": st.sampled_from(["#", "#/$defs/part"]),
        "const": values,
        "enum": st.lists(values, min_size=1, max_size=2),
        **dict.fromkeys(("anyOf", "allOf"), parts),
        **dict.fromkeys(("not", "if", "then", "else"), part),
        **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), number),
        "multipleOf": st.sampled_from([1, 2, 0.5, 1.5, 2000]),
        **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), counts),
        **dict.fromkeys(("minContains", "maxContains", "minProperties", "maxProperties"), counts),
        "pattern": patterns,
        "format": st.sampled_from(["color", "uuid", "ipv4"]),
        **dict.fromkeys(("items", "unevaluatedItems", "contains"), part),
        "prefixItems": parts,
        "uniqueItems": st.booleans(),
        "properties": st.dictionaries(names, inner, max_size=2),
        "patternProperties": st.dictionaries(patterns, inner, max_size=2),
        **dict.fromkeys(("additionalProperties", "unevaluatedProperties"), part),
        "propertyNames": st.sampled_from([{"maxLength": 1}, {"enum": ["a", "b"]}, {}]),
        "required": st.lists(names, max_size=2, unique=True),
        "dependentRequired": st.sampled_from([{}, {"a": ["b"]}]),
        "dependentSchemas": st.dictionaries(names, inner, max_size=1),
    }
    about = [
        ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"],
        ["minLength", "maxLength", "pattern", "format"],
        [
            "items",
            "unevaluatedItems",
            "prefixItems",
            "minItems",
            "maxItems",
            "uniqueItems",
            "contains",
            "minContains",
        ],
        [
            *(
                "properties",
                "patternProperties",
                "additionalProperties",
                "unevaluatedProperties",
                "propertyNames",
            ),
            *("required", "minProperties", "maxProperties", "dependentRequired"),
        ],
        ["$ref", "const", "enum", "anyOf", "allOf", "minLength", "minimum", "required"],
        list(keywords),
    ]
    together = st.sampled_from(about).flatmap(
        lambda group: st.lists(st.sampled_from(group), min_size=1, max_size=4, unique=True)
    )
    return st.tuples(together, st.booleans()).flatmap(
        lambda drawn: st.fixed_dictionaries(
            {keyword: keywords[keyword] for keyword in (*drawn[0], *(["type"] if drawn[1] else ()))}
        )
    )


@settings(max_examples=300, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    st.recursive(leaves, any_keywords, max_leaves=4), leaves.filter(lambda leaf: "$ref" not in leaf), seeds
)
def test_whatever_is_accepted_is_enforced(schema, part, seed):
    schema = {**schema, "$defs": {"part": part}}
    try:
        written = written_values(schema, seed)
    except InvalidParameter:
        assume(False)
    for value in written:
        try:
            assert_valid(value, schema)
        except (
            RecursionError
        ):  # the judge does not see that {"anyOf": [{"$ref": "#"}, …]} says nothing of itself
            assume(False)


@pytest.mark.parametrize("name", FORMAT_LENGTHS)
def test_formats_are_as_long_as_is_said(name):
    least, most = FORMAT_LENGTHS[name]
    written = written_values({"type": "string", "format": name}, seed=1, num_texts=60)
    lengths = [len(text) for text in written]
    assert least <= min(lengths) <= max(lengths) <= most
    assert max(lengths) > least or most == least


def test_one_of_is_any_of():
    schema = {"oneOf": [{"const": "a"}, {"enum": ["a", "b"]}]}
    assert set(written_values(schema, seed=0, num_texts=30)) == {"a", "b"}
