"""What a JSON schema may be like to be followed: bounds on what one request can make the compiler do."""

import json
import re
from collections.abc import Mapping
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
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CODE_POINT = r"(?:[01]?[0-9a-f]|22|5c)"
_NEEDS_ESCAPE = re.compile(
    rf'["\x00-\x1f]|\\(?:["\\fnrtvc0]|x[01][0-9a-f]|x22|x5c|u00[01][0-9a-f]|u0022|u005c|u{{0*{_CODE_POINT}}})',
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
    _check_cost(parsed)
    return json.dumps(parsed)


def _check(node: object, depth: int) -> None:
    if depth > MAX_SCHEMA_DEPTH:
        raise _too_deep()
    if isinstance(node, dict):
        _check_reference(node)
        _check_properties(node)
        for pattern in _patterns(node):
            _check_pattern(pattern)
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            _check(child, depth + 1)


def _check_cost(schema: dict[str, Any]) -> None:
    cost = 0
    pending: list[object] = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            cost += _string_cost(node)
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)
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
    """A pattern's literal characters are written as they are, so none may need an escape in a JSON string."""
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
    if pattern.assertion is not None:
        raise _refusal(
            f"has the pattern {text[:100]!r}: lookahead and lookbehind, here {pattern.assertion!r}, are not supported"
        )


def _too_deep() -> InvalidParameter:
    return _refusal(f"is nested more than {MAX_SCHEMA_DEPTH} levels deep")


def _refusal(reason: str) -> InvalidParameter:
    return InvalidParameter("json_schema", f"json_schema {reason}")
