import datetime as dt
import enum
import json
import uuid
from typing import Annotated, Any, Literal

import pydantic
import pytest
from pydantic import BaseModel, Field

from minivllm_runtime import SamplingParams
from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.json_schema import schema_text

STRING, ARRAY, OBJECT = {"type": "string"}, {"type": "array"}, {"type": "object"}
NULL = {"type": "null"}
A_B = {"properties": {"a": {}, "b": {}}}

IGNORED = [
    ("uniqueItems", {"type": "array", "items": {}, "uniqueItems": True}),
    ("contains", {"type": "array", "items": {}, "contains": NULL}),
    ("contains", {"type": "array", "items": {}, "contains": NULL, "minContains": 0, "maxContains": 1}),
    ("not", {"not": NULL}),
    ("not", {"type": "string", "not": {}}),
    ("if", {"type": ["null", "integer"], "if": NULL, "then": False}),
    ("if", {"type": ["null", "integer"], "if": NULL, "else": {"minimum": 1}}),
    ("dependentRequired", {**A_B, "dependentRequired": {"a": ["b"]}}),
    ("dependentSchemas", {**A_B, "dependentSchemas": {"a": {"required": ["b"]}}}),
    ("dependencies", {**A_B, "dependencies": {"a": ["b"]}}),
    ("$dynamicRef", {"$dynamicRef": "#node"}),
    ("$recursiveRef", {"type": "object", "$recursiveRef": "#"}),
    # Numbers.
    ("multipleOf", {"type": "number", "multipleOf": 2}),
    ("multipleOf", {"type": ["number", "null"], "multipleOf": 0.01}),
    ("multipleOf", {"type": "integer", "multipleOf": 1.5}),
    ("multipleOf", {"type": "integer", "multipleOf": 1025}),
    ("multipleOf", {"type": "integer", "multipleOf": 2, "minimum": 0}),
    ("multipleOf", {"type": "integer", "multipleOf": 2, "minimum": 0, "maximum": 10_000}),
    # Strings.
    ("minLength", {"type": "string", "pattern": "^a*$", "minLength": 1}),
    ("maxLength", {"type": "string", "pattern": "^a{1,3}$", "maxLength": 2}),
    ("maxLength", {"type": "string", "pattern": "^(ab|c+)$", "maxLength": 100}),
    ("maxLength", {"type": "string", "format": "uri", "minLength": 1, "maxLength": 2083}),
    ("minLength", {"type": "string", "format": "ipv4", "minLength": 8}),
    ("pattern", {"type": "string", "format": "date", "pattern": "^2"}),
    ("format", {"type": "string", "format": "regex"}),
    ("format", {"type": "string", "format": "iri", "pattern": "^a"}),
    # Arrays and objects.
    ("required", {"type": "object", "required": ["a"]}),
    ("required", {**A_B, "required": ["a", "c"], "additionalProperties": True}),
    ("patternProperties", {**A_B, "patternProperties": {"^a": NULL}}),
    ("patternProperties", {"type": "object", "patternProperties": {"^a": NULL, "b$": {}}}),
    ("patternProperties", {"type": "object", "patternProperties": {"a": {"const": 1}, "b": {"const": True}}}),
    ("propertyNames", {**A_B, "propertyNames": {"maxLength": 0}}),
    ("propertyNames", {"type": "object", "patternProperties": {"a": {}}, "propertyNames": {"maxLength": 0}}),
    ("propertyNames", {"propertyNames": {"maxLength": 3}, "additionalProperties": False}),
    ("propertyNames", {"propertyNames": {}, "additionalProperties": False}),
    (
        "propertyNames",
        {"properties": {"a": NULL}, "propertyNames": {}, "additionalProperties": {"type": "string"}},
    ),
    ("minProperties", {"additionalProperties": {}, "minProperties": 2}),
    ("minProperties", {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "minProperties": 2}),
    ("minProperties", {**A_B, "required": ["a"], "additionalProperties": {}, "minProperties": 3}),
    # Beside what leads.
    ("type", {"const": 1, "type": "string"}),
    ("type", {"enum": ["a", None], "type": "string"}),
    ("type", {"enum": [1.5], "type": "integer"}),
    ("minLength", {"enum": ["a", 1], "minLength": 2}),
    ("pattern", {"const": "a", "pattern": "b"}),
    ("format", {"const": "a", "format": "date"}),
    ("enum", {"const": "a", "enum": ["b"]}),
    ("type", {"$ref": "#/$defs/null", "type": "string", "$defs": {"null": NULL}}),
    ("minimum", {"$ref": "#/$defs/x", "minimum": 3, "$defs": {"x": {"anyOf": [NULL, {"type": "integer"}]}}}),
    ("required", {"anyOf": [OBJECT, NULL], "required": ["a"]}),
    ("additionalProperties", {"anyOf": [A_B, NULL], "additionalProperties": False}),
    ("oneOf", {"anyOf": [NULL], "oneOf": [{"type": "integer"}]}),
    ("properties", {"allOf": [OBJECT], "properties": {"a": NULL}}),
    ("allOf", {"allOf": [{"type": "integer"}, {"minimum": 3}]}),
    ("type", {"allOf": [{}, {}], "type": "string"}),
    # Without a type.
    ("minLength", {"minLength": 1}),
    ("pattern", {"pattern": "a"}),
    ("minimum", {"title": "a number", "minimum": 1}),
    ("required", {"required": ["a"]}),
    ("minItems", {"minItems": 1}),
    ("propertyNames", {"propertyNames": {"maxLength": 1}}),
]


def at(pointer, schema):
    """A schema that has another one there."""
    for name in reversed(pointer.split("/")[1:]):
        key = name.replace("~1", "/").replace("~0", "~")
        schema = [schema] if key == "0" else {key: schema}
    return schema


@pytest.mark.parametrize(("keyword", "schema"), IGNORED, ids=str)
@pytest.mark.parametrize(
    "pointer",
    [
        "",
        "/properties/a~1b~0",
        "/items/anyOf/0",
        "/prefixItems/0/additionalProperties",
        "/patternProperties/a",
    ],
)
def test_a_keyword_that_would_be_ignored_is_refused_with_its_place(keyword, schema, pointer):
    definitions = {"$defs": schema.get("$defs", {})}
    within = {**at(pointer, schema), **definitions}
    if "patternProperties" in pointer:
        within["type"] = "object"
    with pytest.raises(InvalidParameter) as refusal:
        schema_text(within)
    assert refusal.value.param == "json_schema"
    assert f"json_schema has {keyword!r} at '{pointer}/{keyword}', which cannot be enforced" in str(
        refusal.value
    )
    assert "do not ask to be strict" in str(refusal.value)
    assert json.loads(schema_text(within, is_strict=False)).keys() >= within.keys()


def test_what_a_reference_leads_to_is_looked_at_where_it_is():
    definitions = {"a/b": {"items": {"$ref": "#/$defs/set"}}, "set": {"items": {}, "uniqueItems": True}}
    with pytest.raises(InvalidParameter, match=r"'uniqueItems' at '/[$]defs/set/uniqueItems'"):
        schema_text({"$ref": "#/$defs/a~1b", "$defs": definitions})
    assert schema_text({"$ref": "#/$defs/other", "$defs": {**definitions, "other": NULL}})


@pytest.mark.parametrize(
    "schema",
    [
        {
            "title": "t",
            "description": "d",
            "default": 1,
            "examples": [1],
            "$comment": "c",
            "deprecated": True,
        },
        {"$id": "https://example.com/a", "$schema": "https://json-schema.org/draft/2020-12/schema", **NULL},
        {"readOnly": True, "writeOnly": False, "contentMediaType": "text/plain", "x-unknown": {"not": {}}},
        # What says nothing.
        {
            "type": "array",
            "items": {},
            "uniqueItems": False,
            "minItems": 0,
            "contains": NULL,
            "minContains": 0,
        },
        {"type": "string", "pattern": "^a*$", "minLength": 0},
        {
            "$ref": "#/$defs/a",
            "required": [],
            "properties": {},
            "additionalProperties": True,
            "$defs": {"a": OBJECT},
        },
        {
            "anyOf": [OBJECT],
            "items": {"title": "any"},
            "dependentRequired": {},
            "not": False,
            "allOf": [{}, True],
        },
        {"type": "integer", "dependentSchemas": {}, "then": False},
        {"type": "null", "if": NULL},
        {"type": "integer", "else": False, "minContains": 3, "maxContains": 2},
        # What is about types that are not let through.
        {"type": "integer", "minLength": 3, "required": ["a"], "uniqueItems": True, "format": "int32"},
        {"type": ["null", "string"], "minimum": 3, "maxLength": 3, "multipleOf": 0.1},
        {"const": 1, "minLength": 3},
        {"anyOf": [NULL, {"type": "integer"}], "maxLength": 3},
        {"properties": {"a": NULL}, "minLength": 3},
        # What the other keyword keeps anyway.
        {"type": "string", "pattern": "^[a-z]+$", "minLength": 1},
        {"type": "string", "pattern": "^(ab|c{2,3}|[0-9]{3})$", "minLength": 2, "maxLength": 3},
        {"type": "string", "format": "uuid", "minLength": 36, "maxLength": 36},
        {"type": "string", "format": "email", "minLength": 1},
        {"type": "string", "format": "color", "pattern": "^#[0-9a-f]{6}$"},
        {"type": "string", "format": "password", "minLength": 8},
        {"enum": ["a"], "format": "color"},
        {"type": "integer", "multipleOf": 0.25},
        {"type": "array", "items": {}, "maxItems": 1, "uniqueItems": True},
        {"const": "a", "type": ["null", "string"]},
        {"enum": [1, 2.0], "type": "integer"},
        {"enum": [1, 2.5], "type": "number"},
        {"anyOf": [A_B, {"$ref": "#/$defs/a"}], "type": "object", "$defs": {"a": {"allOf": [OBJECT]}}},
        {"$ref": "#/$defs/a", "type": "array", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}},
        # What is enforced.
        {"type": "integer", "multipleOf": 3, "minimum": 0, "exclusiveMaximum": 10_000},
        {"type": "integer", "multipleOf": 1024},
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1.5},
        {"prefixItems": [NULL], "unevaluatedItems": {"type": "string"}, "minItems": 2, "maxItems": 3},
        {**A_B, "required": ["a"], "minProperties": 2, "maxProperties": 2, "additionalProperties": False},
        {**A_B, "required": ["a"], "minProperties": 2, "additionalProperties": NULL},
        {"type": "object", "patternProperties": {"^a$": NULL, "^b$": NULL}, "additionalProperties": False},
        {
            "type": "object",
            "propertyNames": {"pattern": "^[a-z]$"},
            "additionalProperties": NULL,
            "minProperties": 1,
        },
        {"additionalProperties": NULL, "unevaluatedProperties": False},
        {"oneOf": [{"type": "integer"}, {"type": "number"}]},
        {"allOf": [{"$ref": "#/$defs/a"}], "default": 1, "$defs": {"a": {"type": "integer"}}},
    ],
    ids=str,
)
def test_what_changes_nothing_or_is_enforced_is_accepted(schema):
    for within in (schema, {"items": schema, "$defs": schema.get("$defs", {})}):
        assert schema_text(within) == schema_text(within, is_strict=False)


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=1, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    name: Annotated[str, Field(min_length=1, max_length=9)] | None = None


class Tree(BaseModel):
    children: "list[Tree]"
    parent: "Tree | None" = None


class Free(BaseModel, extra="allow"):
    x: int


class Endless(BaseModel):
    next: "Endless"


@pytest.mark.parametrize(
    "kind",
    [
        int | None,
        Any,
        Literal["a", 1] | None,
        Color,
        Cat,
        Cat | Dog,
        Annotated[Cat | Dog, Field(discriminator="kind")],
        Annotated[Cat, Field(description="a cat", examples=[{}])],
        list[Cat],
        Annotated[list[int], Field(min_length=1, max_length=3)],
        tuple[int, str],
        dict[str, Dog],
        dict[Color, int],
        dict[Annotated[str, Field(pattern="^[a-z]$")], int],
        Annotated[dict[str, int], Field(min_length=1, max_length=3)],
        Annotated[str, Field(min_length=1)],
        Annotated[str, Field(pattern="^[a-z]+$", min_length=1)],
        Annotated[str | None, Field(max_length=3)],
        Annotated[int, Field(ge=1, lt=9)],
        Annotated[int, Field(multiple_of=5)],
        Annotated[float, Field(gt=0, lt=1)],
        dt.datetime,
        dt.date,
        dt.time,
        dt.timedelta,
        uuid.UUID,
        bytes,
        pydantic.AnyUrl,
        pydantic.IPvAnyAddress,
        pydantic.SecretStr,
        Tree,
        Free,
    ],
    ids=str,
)
def test_schemas_that_pydantic_makes_are_accepted(kind):
    model = pydantic.create_model("Model", given=(kind, ...), another=(kind | None, None))
    schema = model.model_json_schema()
    assert schema_text(schema) == schema_text(schema, is_strict=False)
    assert schema_text(pydantic.TypeAdapter(kind).json_schema())


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (set[str], "'uniqueItems' at '/properties/given/uniqueItems'"),
        (frozenset[int], "'uniqueItems' at '/properties/given/uniqueItems'"),
        (Annotated[float, Field(multiple_of=0.5)], "'multipleOf' at '/properties/given/multipleOf'"),
        (Annotated[str, Field(pattern="^a*$", max_length=3)], "'maxLength' at '/properties/given/maxLength'"),
        (
            Annotated[dict[str, int], Field(min_length=2)],
            "'minProperties' at '/properties/given/minProperties'",
        ),
        (pydantic.HttpUrl, "'maxLength' at '/properties/given/maxLength'"),
        (Endless, "no finite value satisfies what is at '/[$]defs/Endless/properties/next'"),
    ],
    ids=str,
)
def test_schemas_that_pydantic_makes_and_that_cannot_be_enforced_are_refused(kind, reason):
    model = pydantic.create_model("Model", given=(kind, ...))
    with pytest.raises(InvalidParameter, match=reason):
        SamplingParams(json_schema=model.model_json_schema())
    assert SamplingParams(json_schema=model.model_json_schema(), strict_schema=False).output_schema


def test_a_name_that_is_a_keyword_is_a_name():
    names = ["not", "uniqueItems", "$ref", "contains", "allOf", "if"]
    assert schema_text({"properties": dict.fromkeys(names, NULL), "required": names})
    assert schema_text({"enum": [{name: 1} for name in names], "default": {"not": 1}})
