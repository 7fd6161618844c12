"""What a JSON schema may be like to be followed: bounds on what one request can make the compiler do."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.schema_pattern import SchemaPattern

MAX_SCHEMA_BYTES = 65536
MAX_SCHEMA_DEPTH = 64
MAX_COUNTED_PROPERTIES = 64
MAX_STRING_COST = 8192
"""What all patterns (`SchemaPattern.cost`) and formats of a schema may cost together.

The worst schemas found at the limit take six seconds of a core for 49,152 ids, usual ones a tenth of a second.
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
_VALUES = ("const", "enum", "default", "examples")
_SCHEMAS_BY_NAME = ("properties", "patternProperties", "$defs", "definitions")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CODE_POINT = r"(?:[01]?[0-9a-f]|22|5c)"
_NEEDS_ESCAPE = re.compile(
    rf'["\x00-\x1f]|\\(?:["\\fnrtvc0]|x[01][0-9a-f]|x22|x5c|u00[01][0-9a-f]|u0022|u005c|u{{0*{_CODE_POINT}}})',
    re.IGNORECASE,
)
_CONTROL_ESCAPE = r"\\(?:[bfnrtv0]|c[a-z]|x[01][0-9a-f]|u00[01][0-9a-f]|u{0*[01]?[0-9a-f]})"
_CLASS_TO_ESCAPE = re.compile(
    rf'\[(?:\^|(?:{_CONTROL_ESCAPE}(?:-{_CONTROL_ESCAPE})?|\\?"|\\(?:\\|(?:x|u00|u{{0*)(?:22|5c)}}?))+)\]',
    re.IGNORECASE,
)


def schema_text(schema: str | Mapping[str, Any]) -> str:
    """Check a schema's form and size and return its text; whether it can be followed, only compiling it shows.

    Raises:
        InvalidParameter: it is no JSON object, or too large, too deep, or too costly to compile.
    """
    if not isinstance(schema, str):
        try:
            schema = json.dumps(schema)
        except (TypeError, ValueError, RecursionError) as error:
            raise _refusal(f"is no JSON: {error}") from error
    num_bytes = len(schema.encode(errors="surrogatepass"))
    if num_bytes > MAX_SCHEMA_BYTES:
        raise _refusal(f"has {num_bytes} bytes; at most {MAX_SCHEMA_BYTES} are allowed")
    try:
        parsed = json.loads(schema)
    except ValueError as error:
        raise _refusal(f"is no JSON: {error}") from error
    except RecursionError as error:
        raise _too_deep() from error
    if not isinstance(parsed, dict):
        raise _refusal("must be a JSON object")
    _check(parsed, depth=1)
    _check_names(parsed)
    _check_cost(parsed)
    return json.dumps(_with_patterns_in_ascii(parsed))


def _with_patterns_in_ascii(node: Any) -> Any:
    """An equal schema. Of a pattern with other characters the compiler forgets that it stands in a JSON string."""
    if isinstance(node, list):
        return [_with_patterns_in_ascii(child) for child in node]
    if not isinstance(node, dict):
        return node
    changed: dict[str, Any] = {}
    for keyword, value in node.items():
        if keyword == "pattern" and isinstance(value, str):
            changed[keyword] = SchemaPattern(value).in_ascii
        elif keyword in _SCHEMAS_BY_NAME and isinstance(value, dict):
            by_pattern = keyword == "patternProperties"
            changed[keyword] = {
                SchemaPattern(name).in_ascii if by_pattern else name: _with_patterns_in_ascii(child)
                for name, child in value.items()
            }
        else:
            changed[keyword] = value if keyword in _VALUES else _with_patterns_in_ascii(value)
    return changed


def _check(node: object, depth: int) -> None:
    if depth > MAX_SCHEMA_DEPTH:
        raise _too_deep()
    if isinstance(node, dict):
        _check_reference(node)
        _check_properties(node)
        _check_alternatives(node)
        for pattern in _patterns(node):
            _check_pattern(pattern)
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            _check(child, depth + 1)


def _check_names(schema: dict[str, Any]) -> None:
    """Names are strings, but the compiler writes as a name whatever their schema allows."""
    objects = list(_objects_in(schema))
    by_name = {id(node.get(keyword)) for node in objects for keyword in _SCHEMAS_BY_NAME}
    names = [node.get("propertyNames") for node in objects if id(node) not in by_name]
    pending = [{"type": "string", **each} for each in names if isinstance(each, dict)]
    followed: set[str] = set()
    while pending:
        node = pending.pop()
        reference = node.get("$ref")
        options = [
            option for keyword in ("anyOf", "oneOf", "allOf") for option in _as_list(node.get(keyword))
        ]
        values = [node["const"]] if "const" in node else _as_list(node.get("enum"))
        if isinstance(reference, str):
            options = [] if reference in followed else [_follow(reference, schema)]
            followed.add(reference)
        elif not options and (
            not all(isinstance(value, str) for value in values) if values else node.get("type") != "string"
        ):
            raise _refusal(
                "has propertyNames that allow other values than strings: let each be of type 'string'"
            )
        pending += (option for option in options if isinstance(option, dict))


def _follow(reference: str, schema: dict[str, Any]) -> object:
    """What a reference leads to; None if that is nothing, which the compiler refuses."""
    place: object = schema
    for name in reference.split("/")[1:]:
        place = place.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(place, dict) else None
    return place


def _objects_in(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    pending: list[object] = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield node
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _check_cost(schema: dict[str, Any]) -> None:
    cost = 0
    for node in _objects_in(schema):
        cost += _string_cost(node)
        if cost > MAX_STRING_COST:
            raise _refusal(
                f"has patterns and formats that cost more than {MAX_STRING_COST} to compile: classes of characters, "
                "repeated often, cost most; minLength and maxLength cost nothing"
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


def _check_reference(node: dict[str, Any]) -> None:
    """The compiler takes other references for anything at all, and prints them as they are."""
    reference = node.get("$ref")
    if isinstance(reference, str) and reference != "#" and not reference.startswith("#/"):
        raise _refusal(
            f"has the $ref {reference[:100]!r}: it must be '#' or begin with '#/', a place in the schema"
        )


def _patterns(node: dict[str, Any]) -> list[str]:
    keyed = node.get("patternProperties")
    patterns = [node.get("pattern"), *(keyed if isinstance(keyed, dict) else ())]
    return [pattern for pattern in patterns if isinstance(pattern, str)]


def _check_pattern(text: str) -> None:
    """A pattern's literal characters are written as they are, so none may need an escape in a JSON string.

    From a class [...] the compiler takes such characters out, unless no others are left.
    """
    pattern = SchemaPattern(text)
    if _CONTROL.search(text):  # the compiler's warnings print a pattern as it is
        raise _refusal(
            f"has the pattern {text[:100]!r}: a control character in it must be written as its escape"
        )
    if _NEEDS_ESCAPE.search(pattern.outside_classes):
        raise _refusal(
            f"has the pattern {text[:100]!r}: outside of [...] it must have no quote, backslash or control "
            "character as itself"
        )
    if any(map(_CLASS_TO_ESCAPE.fullmatch, pattern.classes)):
        raise _refusal(
            f"has the pattern {text[:100]!r}: a class [...] must have other characters than quotes, backslashes and "
            "control characters"
        )
    if pattern.assertion is not None:
        raise _refusal(
            f"has the pattern {text[:100]!r}: lookahead and lookbehind, here {pattern.assertion!r}, are not supported"
        )


def _too_deep() -> InvalidParameter:
    return _refusal(f"is nested more than {MAX_SCHEMA_DEPTH} levels deep")


def _refusal(reason: str) -> InvalidParameter:
    return InvalidParameter("json_schema", f"json_schema {reason}")
