"""What a JSON schema may be like to be followed: bounds on what one request can make the compiler do."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.schema_keywords import check_keywords
from minivllm_runtime.schema_pattern import SchemaPattern
from minivllm_runtime.schema_places import ITEMS, NAMED, OTHERS, as_list, leading_keyword, types_read
from minivllm_runtime.schema_reference import follow

MAX_SCHEMA_BYTES = 65536
MAX_SCHEMA_DEPTH = 64
MAX_COUNTED_PROPERTIES = 64
MAX_STRING_COST = 8192
"""What all patterns (`SchemaPattern.cost`) and formats of a schema may cost together.

The worst schemas found at the limit take nine seconds of a core for 49,152 ids, usual ones a tenth of a second.
"""

_FORMAT_COST = 128
_COSTLY_FORMATS = frozenset(
    [
        "duration",
        "email",
        "hostname",
        "ipv6",
        "json-pointer",
        "relative-json-pointer",
        "uri",
        "uri-reference",
        "uri-template",
    ]
)
_MOST_DIGITS = 300
"""Of an integer: the compiler reads more as infinity."""
_VALUES = ("const", "enum", "default", "examples")
_SCHEMAS_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def schema_text(schema: str | Mapping[str, Any], *, is_strict: bool = True) -> str:
    """Check a schema and return its text for the compiler, which is the last to show whether it can be followed.

    Args:
        schema: As text or as an object.
        is_strict: Whether keywords that would be ignored are refused; see `check_keywords`.

    Raises:
        InvalidParameter: it is no JSON object, or too large, too deep, or too costly to compile, or not enforced.
    """
    parsed = parse_schema(schema)
    schemas = list(_schemas_in(parsed))
    for node in schemas:
        _check_properties(node)
        _check_alternatives(node)
    _check_references(schemas, parsed)
    _check_names(schemas, parsed)
    _check_cost(schemas)
    for node in schemas:
        _make_openness_explicit(node)
    check_keywords(parsed, is_strict=is_strict)
    for node in schemas:
        _make_patterns_explicit(node)
    return _dumped(parsed)


def parse_schema(schema: str | Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a schema, given as text or as an object.

    Raises:
        InvalidParameter: it is no JSON object, or too large or too deep.
    """
    if not isinstance(schema, str):
        schema = _dumped(schema)
    num_bytes = len(schema.encode(errors="surrogatepass"))
    if num_bytes > MAX_SCHEMA_BYTES:
        raise _refusal(f"has {num_bytes} bytes; at most {MAX_SCHEMA_BYTES} are allowed")
    try:
        parsed = json.loads(schema, parse_constant=_refuse_constant, parse_int=_parse_int)
    except json.JSONDecodeError as error:
        raise _refusal(f"is no JSON: {error}") from error
    except RecursionError as error:
        raise _too_deep() from error
    if not isinstance(parsed, dict):
        raise _refusal("must be a JSON object")
    _check_depth(parsed, depth=1)
    return parsed


def move_references(schema: dict[str, Any], pointer: str) -> None:
    """Let the references from a schema to itself lead to `pointer`, its place in a larger one, such as "#/items"."""
    for node in _schemas_in(schema):
        reference = node.get("$ref")
        if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
            node["$ref"] = pointer + reference[1:]


def _parse_int(text: str) -> int:
    num_digits = len(text.removeprefix("-"))
    if num_digits > _MOST_DIGITS:
        raise _refusal(
            f"has an integer of {num_digits} digits, {text[:20]}…; at most {_MOST_DIGITS} are allowed"
        )
    return int(text)


def _refuse_constant(name: str) -> None:
    raise _refusal(f"is no JSON: {name} is no number")


def _dumped(schema: Mapping[str, Any]) -> str:
    try:
        return json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _refusal(f"is no JSON: {error}") from error


def _check_depth(node: object, depth: int) -> None:
    if depth > MAX_SCHEMA_DEPTH:
        raise _too_deep()
    if isinstance(node, dict | list):
        for child in node.values() if isinstance(node, dict) else node:
            _check_depth(child, depth + 1)


def _schemas_in(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All objects in a schema that are schemas: neither values nor named collections of schemas."""
    pending: list[object] = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending.extend(node)
        elif isinstance(node, dict):
            yield node
            for keyword, value in node.items():
                if keyword in _SCHEMAS_BY_NAME and isinstance(value, dict):
                    pending.extend(value.values())
                elif keyword not in _VALUES:
                    pending.append(value)


def _make_openness_explicit(node: dict[str, Any]) -> None:
    """Say that anything may be in an object or array of which no part is described.

    The compiler takes one that is described otherwise, by a count for instance, for one that has no parts.
    """
    types = types_read(node) or ()
    if leading_keyword(node) is None:
        if "object" in types and not node.keys() & {*NAMED, *OTHERS, "propertyNames"}:
            node["additionalProperties"] = True
        if "array" in types and not node.keys() & {"prefixItems", *ITEMS}:
            node["items"] = True


def _make_patterns_explicit(node: dict[str, Any]) -> None:
    if isinstance(node.get("pattern"), str):
        node["pattern"] = SchemaPattern(node["pattern"]).explicit
    keyed = node.get("patternProperties")
    if isinstance(keyed, dict):
        node["patternProperties"] = {SchemaPattern(name).explicit: child for name, child in keyed.items()}


def _check_names(schemas: list[dict[str, Any]], schema: dict[str, Any]) -> None:
    """Names are strings, but the compiler writes as a name whatever their schema allows."""
    names = [node.get("propertyNames") for node in schemas]
    pending = [{"type": "string", **each} for each in names if isinstance(each, dict)]
    followed: set[str] = set()
    while pending:
        node = pending.pop()
        reference = node.get("$ref")
        options = [option for keyword in ("anyOf", "oneOf", "allOf") for option in as_list(node.get(keyword))]
        values = [node["const"]] if "const" in node else as_list(node.get("enum"))
        if isinstance(reference, str):
            options = [] if reference in followed else [follow(reference, schema)]
            followed.add(reference)
        elif not options and (
            not all(isinstance(value, str) for value in values) if values else node.get("type") != "string"
        ):
            raise _refusal(
                "has propertyNames that allow other values than strings: let each be of type 'string'"
            )
        pending += (option for option in options if isinstance(option, dict))


def _check_cost(schemas: list[dict[str, Any]]) -> None:
    cost = 0
    for node in schemas:
        cost += _string_cost(node)
        if cost > MAX_STRING_COST:
            raise _refusal(
                f"has patterns and formats that cost more than {MAX_STRING_COST} to compile: classes of characters, "
                "repeated often, cost most; in place of a pattern, minLength and maxLength cost nothing"
            )


def _string_cost(node: dict[str, Any]) -> int:
    name = node.get("format")
    cost = _FORMAT_COST if isinstance(name, str) and name in _COSTLY_FORMATS else 0
    return cost + sum(SchemaPattern(pattern).cost(MAX_STRING_COST) for pattern in _patterns(node))


def _check_properties(node: dict[str, Any]) -> None:
    """Which of n properties are there is a state of the grammar where their number counts."""
    properties = node.get("properties")
    num_properties = len(properties) if isinstance(properties, dict) else 0
    if num_properties > MAX_COUNTED_PROPERTIES and node.keys() & {"minProperties", "maxProperties"}:
        raise _refusal(
            f"counts {num_properties} properties of an object (minProperties or maxProperties); "
            f"at most {MAX_COUNTED_PROPERTIES} can be counted"
        )


def _check_alternatives(node: dict[str, Any]) -> None:
    """The compiler takes none at all for the empty text, which is no JSON."""
    for keyword in ("anyOf", "oneOf"):
        if node.get(keyword) == []:
            raise _refusal(f"has an empty {keyword}: nothing satisfies it")


def _check_references(schemas: list[dict[str, Any]], schema: dict[str, Any]) -> None:
    """The compiler takes references out of a schema for anything at all, and values for schemas."""
    places = {id(node) for node in schemas}
    for node in schemas:
        reference = node.get("$ref")
        if not isinstance(reference, str):
            continue
        if reference != "#" and not reference.startswith("#/"):
            raise _refusal(
                f"has the $ref {reference[:100]!r}: it must be '#' or begin with '#/', a place in the schema"
            )
        place = follow(reference, schema)
        if id(place) not in places and not isinstance(place, bool):
            raise _refusal(f"has the $ref {reference[:100]!r}, which leads to no schema in it")


def _patterns(node: dict[str, Any]) -> list[str]:
    keyed = node.get("patternProperties")
    patterns = [node.get("pattern"), *(keyed if isinstance(keyed, dict) else ())]
    return [pattern for pattern in patterns if isinstance(pattern, str)]


def _too_deep() -> InvalidParameter:
    return _refusal(f"is nested more than {MAX_SCHEMA_DEPTH} levels deep")


def _refusal(reason: str) -> InvalidParameter:
    return InvalidParameter("json_schema", f"json_schema {reason}")
