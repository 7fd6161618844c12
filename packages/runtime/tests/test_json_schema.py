import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.json_schema import MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH, schema_text

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), json_values, max_size=3))
def test_text_and_object_are_the_same_schema(schema):
    assert json.loads(schema_text(schema)) == schema
    assert schema_text(json.dumps(schema, indent=2)) == schema_text(schema)


def test_integers_of_the_most_digits_are_accepted():
    assert schema_text({"default": [10**299, -(10**299)]})


def nested(depth):
    return '{"items":' * (depth - 1) + "{}" + "}" * (depth - 1)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("[]", "object"),
        ("true", "object"),
        ('"{}"', "object"),
        ({"enum": {1, 2}}, "no JSON"),
        ({"const": float("nan")}, "no JSON"),
        ('{"const": NaN}', "no JSON"),
        ('{"default": 1e999}', "no JSON"),
        ({"default": [10**300]}, "integer of 301 digits, 10000000000000000000…; at most 300"),
        ({"maxLength": -(10**300)}, "integer of 301 digits, -1000000000000000000…; at most 300"),
        (nested(MAX_SCHEMA_DEPTH + 1), "64 levels"),
        (nested(6500), "64 levels"),
        ('{"a":"' + "x" * MAX_SCHEMA_BYTES + '"}', "65544 bytes; at most 65536"),
        ({"properties": {f"p{i}": {} for i in range(65)}, "minProperties": 3}, "65 properties.*at most 64"),
        ({"items": {"properties": {f"p{i}": {} for i in range(65)}, "maxProperties": 3}}, "at most 64"),
        ({"anyOf": []}, "empty anyOf"),
        ({"properties": {"a": {"items": {"oneOf": []}}}}, "empty oneOf"),
    ],
)
def test_what_cannot_be_a_schema_or_costs_too_much_is_refused(schema, reason):
    with pytest.raises(InvalidParameter, match=reason) as refusal:
        schema_text(schema)
    assert refusal.value.param == "json_schema"


@pytest.mark.parametrize(
    "pattern",
    [
        '"',
        'a"b',
        '\\"',
        "a\\\\b",
        "\\n",
        "\n",
        "\\t",
        "\\x22",
        "\\u0022",
        "\\u001F",
        "\\u{5c}",
        "\\cJ",
        "\\0",
        '[]"]',
        '\\["\\]',
        '["]',
        'a[\\"]{2}',
        "[\\\\]",
        '["\\\\\\n]',
        "[\\x00-\\x1f]",
        "[\\u0000-\\u{1f}\\b\\cJ]",
        "[\\x22\\u005C\\u{22}]",
        "[^ -\\u{10ffff}]",
        "a|\\n",
    ],
)
def test_a_pattern_of_characters_that_json_must_escape_is_refused(pattern):
    for schema in ({"pattern": pattern}, {"items": {"patternProperties": {pattern: {}}}}):
        with pytest.raises(InvalidParameter, match="pattern"):
            schema_text(schema)


@pytest.mark.parametrize("pattern", ["\n", "a\x1b", "(\u2028", "\\\x7f("])
def test_a_refusal_prints_no_control_characters(pattern):
    with pytest.raises(InvalidParameter) as refusal:
        schema_text({"pattern": pattern})
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize("pattern", ["(?=a)b", "a(?!b)", "(?<=a)b", "x|(?<!a)b", "\\[(?=a)b]"])
def test_a_pattern_that_looks_around_is_refused(pattern):
    with pytest.raises(InvalidParameter, match=r"lookahead and lookbehind, here '\(\?<?[=!]', are not"):
        schema_text({"items": {"pattern": pattern}})


@pytest.mark.parametrize("pattern", ["(?:a)b", "(?<name>a)", "\\(?=", "[(?=]"])
def test_a_pattern_that_looks_like_looking_around_is_accepted(pattern):
    assert schema_text({"type": "string", "pattern": pattern})


@pytest.mark.parametrize("reference", ["", "x\nFORGED", "http://example.com/schema", "#x", "#x\nFORGED"])
def test_a_reference_to_another_place_than_in_the_schema_is_refused(reference):
    with pytest.raises(InvalidParameter, match=r"\$ref") as refusal:
        schema_text({"items": {"$ref": reference}})
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize(
    "reference",
    [
        "#/$defs",
        "#/$defs/b",
        "#/const",
        "#/const/0",
        "#/c%6Fnst/0",
        "#/allOf",
        "#/allOf/00",
        "#/allOf/1",
        "#/a\nb",
    ],
)
def test_a_reference_to_what_is_no_schema_is_refused(reference):
    schema = {"items": {"$ref": reference}, "$defs": {"a": {}}, "const": [{"pattern": "["}], "allOf": [{}]}
    with pytest.raises(InvalidParameter, match="leads to no schema") as refusal:
        schema_text(schema)
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize("reference", ["#/$defs/a~1b", "#/$defs/%61~1b", "#/allOf/1", "#/$defs/all"])
def test_a_reference_is_read_as_a_json_pointer(reference):
    names = {"a/b": {"type": "null"}, "all": True}
    assert schema_text({"$ref": reference, "$defs": names, "allOf": [{}, {}]})


def test_a_reference_into_the_schema_is_accepted():
    assert schema_text({"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#"}}}})
    assert schema_text({"properties": {"$ref": {"type": "string"}}})


NUMBERS = {"x": {"type": "integer"}, "names": {"anyOf": [{"const": "a"}, {"$ref": "#/$defs/x"}]}}


@pytest.mark.parametrize(
    "names",
    [
        {"const": 1},
        {"enum": ["a", 1]},
        {"type": "integer"},
        {"type": ["string", "integer"]},
        {"anyOf": [{"const": "a"}, {"type": "integer"}]},
        {"oneOf": [{"allOf": [{}]}]},
        {"$ref": "#/$defs/x"},
        {"$ref": "#/$defs/names"},
        {"$ref": "#"},
    ],
)
def test_names_that_may_be_no_strings_are_refused(names):
    with pytest.raises(InvalidParameter, match="propertyNames"):
        schema_text({"items": {"propertyNames": names}, "$defs": NUMBERS})


@pytest.mark.parametrize(
    "names",
    [
        {},
        {"pattern": "^a"},
        {"maxLength": 3},
        {"enum": ["a", "b"]},
        {"anyOf": [{"const": "a"}, {"type": "string", "format": "date"}]},
        {"$ref": "#/$defs/color"},
        {"$ref": "#/$defs/one~1of"},
    ],
)
def test_names_that_are_strings_are_accepted(names):
    definitions = {
        "color": {"enum": ["red"], "type": "string"},
        "one/of": {"oneOf": [{"$ref": "#/$defs/color"}] * 2},
    }
    assert schema_text({"items": {"type": "object", "propertyNames": names}, "$defs": definitions})


def test_a_property_may_be_called_as_a_keyword():
    for place in ("properties", "$defs"):
        assert schema_text({place: {"propertyNames": {"type": "integer"}}})
    assert schema_text({"properties": {"pattern": {"type": "string"}, '"': {}}})


@pytest.mark.parametrize(
    "schemas",
    [
        [{"pattern": "a{1,500}"}] * 1000,
        [{"patternProperties": {f"^a{{1,{100 + i}}}$": {}}} for i in range(100)],
        [{"pattern": ".?" * 128}],
        [{"pattern": ".{0,127}" * 4}],
        [{"format": "uri-template"}] * 65,
    ],
)
def test_patterns_and_formats_that_cost_too_much_together_are_refused(schemas):
    with pytest.raises(
        InvalidParameter, match=r"cost more than 8192 .*: .* in place of a pattern, minLength"
    ):
        schema_text({"properties": {f"p{i}": schema for i, schema in enumerate(schemas)}})


@pytest.mark.parametrize(
    "schemas",
    [
        [{"pattern": "^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$"}] * 15,
        [{"pattern": "^[a-zA-Z0-9_-]+$"}] * 400,
        [{"pattern": "^(" + "|".join(f"zone/{i}" for i in range(400)) + ")$"}],
        [{"format": "email"}] * 64,
        [{"format": "date", "maxLength": 10**6}] * 900,
    ],
)
def test_usual_patterns_and_formats_are_accepted(schemas):
    strings = {f"p{i}": {"type": "string", **schema} for i, schema in enumerate(schemas)}
    assert schema_text({"properties": strings})


def test_at_the_limits_it_is_accepted():
    assert schema_text(nested(MAX_SCHEMA_DEPTH))
    assert schema_text({"properties": {f"p{i}": {} for i in range(200)}})
    assert schema_text({"properties": {f"p{i}": {} for i in range(64)}, "maxProperties": 3})


def test_patterns_are_written_explicitly_and_values_as_they_are():
    names = {"pattern": {"pattern": "^é$"}, "const": {"items": [{"pattern": "é"}]}}
    values = {"enum": [{"pattern": "("}], "const": {"pattern": "é"}, "default": {"anyOf": []}}
    schema = {"properties": names, "patternProperties": {"é": {"pattern": "é"}}, "$defs": {"é": values}}
    assert json.loads(schema_text(schema, is_strict=False)) == {
        "properties": {"pattern": {"pattern": "\\u{e9}"}, "const": {"items": [{"pattern": "\\u{e9}"}]}},
        "patternProperties": {"\\u{e9}": {"pattern": "\\u{e9}"}},
        "$defs": {"é": values},
    }
