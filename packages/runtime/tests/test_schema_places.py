import pytest

from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.json_schema import schema_text

NULL = {"type": "null"}
NODE = {"properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["next"]}


@pytest.mark.parametrize(
    ("pointer", "schema"),
    [
        ("/properties/a", {"properties": {"a": {"$ref": "#"}}, "required": ["a"]}),
        ("/items", {"items": {"$ref": "#"}, "minItems": 1}),
        ("/prefixItems/0", {"prefixItems": [{"$ref": "#"}], "minItems": 1}),
        ("/additionalProperties", {"additionalProperties": {"$ref": "#"}, "minProperties": 1}),
        (
            "/patternProperties/a",
            {"type": "object", "patternProperties": {"a": {"$ref": "#"}}, "minProperties": 1},
        ),
        ("/anyOf/0", {"anyOf": [{"$ref": "#"}]}),
        ("/$defs/node/properties/next", {"$ref": "#/$defs/node", "$defs": {"node": NODE}}),
        # It could be left out, but whoever begins it does not end.
        (
            "/$defs/node/properties/next",
            {"properties": {"a": {"$ref": "#/$defs/node"}}, "$defs": {"node": NODE}},
        ),
        ("/$defs/node/properties/next", {"anyOf": [NULL, {"$ref": "#/$defs/node"}], "$defs": {"node": NODE}}),
    ],
    ids=str,
)
def test_what_no_finite_value_satisfies_is_refused(pointer, schema):
    with pytest.raises(InvalidParameter) as refusal:
        schema_text(schema)
    assert refusal.value.param == "json_schema"
    assert str(refusal.value).endswith(
        f"cannot be followed: no finite value satisfies what is at '{pointer}'"
    )
    assert schema_text(schema, is_strict=False)


def test_a_whole_schema_that_no_finite_value_satisfies_is_refused():
    with pytest.raises(InvalidParameter, match=r"no finite value satisfies it$"):
        schema_text({"$ref": "#"})


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#"}}},
        {"items": {"$ref": "#"}},
        {"prefixItems": [NULL, {"$ref": "#"}], "minItems": 1},
        {"properties": {"a": {"anyOf": [{"$ref": "#"}, NULL]}}, "required": ["a"]},
        {"type": ["object", "null"], "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"properties": {"a": {"items": {"$ref": "#"}}}, "required": ["a"], "minProperties": 1},
        {
            "anyOf": [{"$ref": "#/$defs/b"}],
            "$defs": {"a": {"items": {"$ref": "#"}}, "b": {"$ref": "#/$defs/a"}},
        },
    ],
    ids=str,
)
def test_a_recursion_with_a_way_out_is_accepted(schema):
    assert schema_text(schema)
