"""Which keywords of a JSON schema its grammar enforces: what could matter and would be ignored is refused.

A keyword that the compiler (xgrammar 0.2.9) does not read where it stands is harmless if it says nothing, or is about
types that the schema does not let through, or if what is read instead keeps it anyway.
"""

import json
import math
from collections.abc import Iterator
from fractions import Fraction

from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.schema_pattern import SchemaPattern
from minivllm_runtime.schema_places import (
    ITEMS,
    LEADING,
    NAMED,
    OTHERS,
    TYPES,
    Place,
    Schema,
    Types,
    as_dict,
    as_list,
    is_single,
    leading_keyword,
    reached_places,
    types_read,
)

_NUMBERS = frozenset(["integer", "number"])
_STRING, _ARRAY, _OBJECT = (frozenset([name]) for name in ("string", "array", "object"))
_BOUNDS = frozenset(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"])
_LENGTHS = frozenset(["minLength", "maxLength"])

_CONSTRAINED: dict[str, Types] = {
    **dict.fromkeys((*LEADING, "type", "not", "if", "$dynamicRef", "$recursiveRef"), TYPES),
    **dict.fromkeys((*_BOUNDS, "multipleOf"), _NUMBERS),
    **dict.fromkeys((*_LENGTHS, "pattern", "format"), _STRING),
    **dict.fromkeys((*ITEMS, "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"), _ARRAY),
    **dict.fromkeys((*NAMED, *OTHERS, "propertyNames", "required"), _OBJECT),
    **dict.fromkeys(("minProperties", "maxProperties"), _OBJECT),
    **dict.fromkeys(("dependentRequired", "dependentSchemas", "dependencies"), _OBJECT),
}
"""The types that each keyword constrains. Others are annotations, or say something beside one of these only."""

_NOTHING_IF_EMPTY = frozenset(
    [
        *("minLength", "minItems", "minProperties", "uniqueItems", "required", "prefixItems", *NAMED),
        *("dependentRequired", "dependentSchemas", "dependencies"),
    ]
)
FORMAT_LENGTHS: dict[object, tuple[int, float]] = {
    "date": (10, 10),
    "date-time": (20, math.inf),
    "duration": (3, math.inf),
    "email": (3, math.inf),
    "hostname": (1, math.inf),
    "ipv4": (7, 15),
    "ipv6": (2, 45),
    "json-pointer": (0, math.inf),
    "relative-json-pointer": (1, math.inf),
    "time": (9, math.inf),
    "uri": (2, math.inf),
    "uri-reference": (0, math.inf),
    "uri-template": (0, math.inf),
    "uuid": (36, 36),
}
"""The formats that are enforced, with the fewest and the most characters of what they let through."""
_UNKNOWN_FORMATS = frozenset(["idn-email", "idn-hostname", "iri", "iri-reference", "regex"])
"""The other ones that JSON Schema defines; any other name of a format is an annotation."""

_MOST_MULTIPLE = 1024
_MOST_WIDTH = 10_000


def check_keywords(schema: Schema, *, is_strict: bool) -> None:
    """Check that what a schema says can be followed, and with `is_strict` that all of it will be.

    That only one of `oneOf` may match is never enforced.

    Args:
        schema: Its references lead to schemas in it, its patterns are supported.
        is_strict: Whether a keyword that would be ignored is refused, and what no finite value satisfies.

    Raises:
        InvalidParameter: naming the keyword or the place.
    """
    places = reached_places(schema)
    if not is_strict:
        return
    for place in reversed(places):  # a part is rather to blame than the whole
        if not place.types:
            what = f"what is at {place.pointer[:200]!r}" if place.pointer else "it"
            raise InvalidParameter(
                "json_schema", f"json_schema cannot be followed: no finite value satisfies {what}"
            )
    for place in places:
        for keyword in _ignored(place):
            raise _refusal(place, keyword)


def _ignored(place: Place) -> Iterator[str]:
    """The keywords that change which values are valid, and not which are written."""
    keywords = [keyword for keyword in place.node if keyword in _CONSTRAINED]
    enforced = {kind: _enforced(place.node, kind) for kind in place.types} if keywords else {}
    for keyword in keywords:
        concerned = _CONSTRAINED[keyword] & place.types
        is_enforced = all(keyword in enforced[kind] for kind in concerned)
        if not is_enforced and not _says_nothing(place.node, keyword):
            yield keyword


def _enforced(node: Schema, kind: str) -> Types:
    """The keywords that all values of some type that are written satisfy."""
    leading = leading_keyword(node)
    read = types_read(node)
    if leading is not None:
        named = node.get("type")
        names = [named] if isinstance(named, str) else as_list(named)
        is_named = kind in names or (kind == "integer" and "number" in names)
        is_followed = leading != "allOf" or is_single(node["allOf"])
        return frozenset([*([leading] if is_followed else ()), *(["type"] if is_named else ())])
    if read is None:
        return frozenset()
    always = frozenset(["type"])
    match kind:
        case "string":
            return always | _enforced_of_strings(node)
        case "integer":
            return always | _BOUNDS | ({"multipleOf"} if _is_multiple_followed(node) else frozenset())
        case "number":
            return always | _BOUNDS
        case "array":
            unique = {"uniqueItems"} if node.get("maxItems", 2) <= 1 else frozenset()
            return always | {*ITEMS, "prefixItems", "minItems", "maxItems"} | unique
        case "object":
            return always | _enforced_of_objects(node)
    return always


def _enforced_of_strings(node: Schema) -> Types:
    """A format that is known comes first, then a pattern, then lengths; what comes first may keep what comes later."""
    name = node.get("format")
    read = frozenset[str]()
    if name in FORMAT_LENGTHS:
        least, most = FORMAT_LENGTHS[name]
        read |= {"format"}
    elif "pattern" in node:
        least, most = SchemaPattern(node["pattern"]).lengths
        read |= {"pattern"}
    else:
        return read | _LENGTHS
    if node.get("minLength", 0) <= least:
        read |= {"minLength"}
    if node.get("maxLength", 0) >= most:
        read |= {"maxLength"}
    return read


def _is_multiple_followed(node: Schema) -> bool:
    """Of integers: where they have no bounds, or two that are not far from each other."""
    step = Fraction(str(node.get("multipleOf", 1)))
    if step.numerator == 1:
        return True  # what no integer violates
    if step.denominator != 1 or step > _MOST_MULTIPLE:
        return False
    lowest = [
        node[name] + is_open for name, is_open in (("minimum", 0), ("exclusiveMinimum", 1)) if name in node
    ]
    highest = [
        node[name] - is_open for name, is_open in (("maximum", 0), ("exclusiveMaximum", 1)) if name in node
    ]
    if lowest and highest:
        return bool(min(highest) - max(lowest) < _MOST_WIDTH)
    return not lowest and not highest


def _enforced_of_objects(node: Schema) -> Types:
    """Names in `properties` are written once each, others perhaps twice, and each with one schema only.

    Whatever `propertyNames` says, names that it allows may then be any, those in `properties` included.
    """
    properties, patterns = (as_dict(node.get(keyword)) for keyword in NAMED)
    others = next((node[keyword] for keyword in OTHERS if keyword in node), None)
    enforced = frozenset(["properties", *OTHERS, "maxProperties"])
    required = set(node.get("required", ()))
    if required <= properties.keys():
        enforced |= {"required"}
    if not properties and len({json.dumps(part, sort_keys=True) for part in patterns.values()}) <= 1:
        enforced |= {"patternProperties"}
    if not properties and not patterns and others is not False:
        enforced |= {"propertyNames"}
    is_closed = not patterns and "propertyNames" not in node and (others is None or others is False)
    if is_closed or node.get("minProperties", 0) <= len(required) + 1:
        enforced |= {"minProperties"}
    return enforced


def _says_nothing(node: Schema, keyword: str) -> bool:
    """Whether a keyword allows whatever it is about."""
    value = node[keyword]
    if keyword in _NOTHING_IF_EMPTY:
        return not value
    if keyword in (*ITEMS, *OTHERS):
        return _allows_anything(value)
    match keyword:
        case "format":
            return not isinstance(value, str) or not (value in FORMAT_LENGTHS or value in _UNKNOWN_FORMATS)
        case "allOf":
            return all(map(_allows_anything, as_list(value)))
        case "not":
            return value is False
        case "if":
            return not node.keys() & {"then", "else"}
        case "contains":
            return node.get("minContains") == 0 and "maxContains" not in node
    return False


def _allows_anything(schema: object) -> bool:
    if isinstance(schema, dict):
        return all(_says_nothing(schema, keyword) for keyword in schema if keyword in _CONSTRAINED)
    return schema is True


def _refusal(place: Place, keyword: str) -> InvalidParameter:
    node = place.node
    where, advice = "", "leave it out"
    leading = leading_keyword(node)
    if leading not in (None, keyword):
        where = f" beside {leading!r}"
    elif leading == "allOf":
        where, advice = " with more than one schema", "write them as one"
    elif types_read(node) is None:
        where, advice = " without a type", "give the type beside it"
    elif keyword in _LENGTHS or keyword == "pattern":
        where = f" beside {'format' if node.get('format') in FORMAT_LENGTHS else 'pattern'!r}"
    elif keyword == "required":
        where, advice = " of other names than those in 'properties'", "name them there"
    elif keyword == "minProperties":
        where = " where a name may be written twice"
    elif keyword == "patternProperties" and not node.get("properties"):
        where = " with several patterns"
    elif keyword in ("patternProperties", "propertyNames"):
        where = " beside the other keywords about names"
    elif keyword == "multipleOf":
        where = " with this type, number or bounds"
    return InvalidParameter(
        "json_schema",
        f"json_schema has {keyword!r} at {f'{place.pointer}/{keyword}'[:200]!r}, which cannot be enforced{where}: "
        f"{advice}, or do not ask to be strict",
    )
