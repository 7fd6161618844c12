"""The places of a JSON schema that the compiler reads as schemas, and the types of the values that they let through.

xgrammar 0.2.9 reads the first of `LEADING` that a schema has and nothing beside it. Without any of them it reads what
is about the types that the schema names, or about the one type that its keywords are for, or nothing at all.

The types of the finite values at each place are the least solution of what the places say of each other; a place that
has none would be written without end.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.schema_reference import escaped, follow
from minivllm_runtime.schema_values import check_constants, check_values

Schema = dict[str, Any]
Types = frozenset[str]

TYPES = frozenset(["null", "boolean", "integer", "number", "string", "array", "object"])
LEADING = ("$ref", "const", "enum", "anyOf", "oneOf", "allOf")
ITEMS = ("items", "unevaluatedItems")
"""The first that is there is about what follows `prefixItems`."""
NAMED = ("properties", "patternProperties")
OTHERS = ("additionalProperties", "unevaluatedProperties")
"""The first that is there is about properties that `NAMED` do not have."""


@dataclass(slots=True, eq=False)
class Place:
    """A schema in a schema.

    Attributes:
        node: The schema; true and false have places, too.
        step: The JSON pointer that leads to it from the place `above`, or from the root.
        parts: What it is made of, by the identity of their nodes.
        types: Of the finite values that are known to satisfy it.
    """

    node: Any
    step: str = ""
    above: "Place | None" = None
    parts: dict[int, "Place"] = field(default_factory=dict)
    types: Types = frozenset()

    @property
    def pointer(self) -> str:
        """The JSON pointer to it."""
        steps = []
        place: Place | None = self
        while place is not None:
            steps.append(place.step)
            place = place.above
        return "".join(reversed(steps))


def reached_places(schema: Schema) -> list[Place]:
    """The objects that the compiler reads as schemas, each before most of its parts, with the types of their values.

    Args:
        schema: Its references lead to schemas in it.

    Raises:
        InvalidParameter: a keyword that is read has a value that cannot be followed.
    """
    root = Place(schema)
    places = {id(schema): root}
    pending = [root]
    reached = []
    while pending:
        place = pending.pop()
        try:
            _check_values(place.node)
        except InvalidParameter as error:
            where = f", at {place.pointer[:200]!r}" if place.pointer else ""
            raise InvalidParameter("json_schema", f"{error}{where}") from error
        reached.append(place)
        for part in _parts(place, schema):
            known = places.setdefault(id(part.node), part)
            place.parts[id(part.node)] = known
            if known is part and isinstance(part.node, dict):
                pending.append(part)
            elif known is part and part.node is not False:  # true, or what the compiler refuses
                part.types = TYPES
    _find_types(reached)
    return reached


def _check_values(node: Schema) -> None:
    match leading_keyword(node):
        case None:
            types = types_read(node)
            if types == frozenset():
                raise InvalidParameter(
                    "json_schema", "json_schema has a wrong type: it must be a string or an array of strings"
                )
            check_values(node, types or ())
        case "const":
            check_constants([node["const"]])
        case "enum":
            check_constants(as_list(node["enum"]))
        case "$ref" if not isinstance(node["$ref"], str):
            raise InvalidParameter("json_schema", "json_schema has a wrong $ref: it must be a string")


def _parts(place: Place, schema: Schema) -> Iterator[Place]:
    """What the compiler reads as a schema in one."""
    node = place.node
    leading = leading_keyword(node)
    types = types_read(node) or frozenset()
    if leading == "$ref":
        yield Place(follow(node["$ref"], schema), unquote(node["$ref"])[1:])
    elif leading in ("anyOf", "oneOf", "allOf"):
        yield from _members(place, leading)
    elif leading is None and "array" in types:
        yield from _members(place, "prefixItems")
        yield from (Place(node[keyword], f"/{keyword}", place) for keyword in ITEMS if keyword in node)
    if leading is None and "object" in types:
        yield from (part for keyword in NAMED for part in _members(place, keyword))
        yield from (Place(node[keyword], f"/{keyword}", place) for keyword in OTHERS if keyword in node)
        if isinstance(node.get("propertyNames"), dict):  # names are strings without saying so
            yield Place({"type": "string", **node["propertyNames"]}, "/propertyNames", place)


def _members(place: Place, keyword: str) -> Iterator[Place]:
    """The schemas that a keyword lists or names."""
    value = place.node.get(keyword)
    for name, part in value.items() if isinstance(value, dict) else enumerate(as_list(value)):
        yield Place(part, f"/{keyword}/{escaped(str(name))}", place)


def leading_keyword(node: Schema) -> str | None:
    """The keyword beside which none is read."""
    return next((keyword for keyword in LEADING if keyword in node), None)


def types_read(node: Schema) -> Types | None:
    """The types whose keywords are read in a schema without a leading keyword; None: any value is let through."""
    named = node.get("type")
    if "type" in node:
        return frozenset(
            name for name in ([named] if isinstance(named, str) else as_list(named)) if isinstance(name, str)
        )
    if node.keys() & {"properties", *OTHERS}:
        return frozenset(["object"])
    if node.keys() & {"prefixItems", *ITEMS}:
        return frozenset(["array"])
    return None


def _find_types(places: list[Place]) -> None:
    users: dict[int, list[Place]] = {}
    for place in places:
        for part in place.parts:
            users.setdefault(part, []).append(place)
    pending = dict.fromkeys(places)
    while pending:
        place, _ = pending.popitem()
        types = _types(place)
        if types != place.types:
            place.types = types
            pending.update(dict.fromkeys(users.get(id(place.node), ())))


def _types(place: Place) -> Types:
    """The types of the finite values that a place lets through, as far as those of its parts are known."""
    node = place.node
    leading = leading_keyword(node)
    match leading:
        case None:
            read = types_read(node)
            return TYPES if read is None else frozenset(kind for kind in read if _has_value(place, kind))
        case "const":
            return frozenset([_type_of(node["const"])])
        case "$ref":
            pass
        case "allOf" if not is_single(node["allOf"]):
            return TYPES
        case _ if not isinstance(node[leading], list):  # the compiler refuses it
            return TYPES
        case "enum":
            return frozenset(map(_type_of, node["enum"]))
    return frozenset[str]().union(*(part.types for part in place.parts.values()))


def _has_value(place: Place, kind: str) -> bool:
    """Whether a finite value of some type is known."""
    node = place.node
    needed: list[Any] = []
    if kind == "array":
        prefix, least = as_list(node.get("prefixItems")), node.get("minItems", 0)
        others = [node[keyword] for keyword in ITEMS if keyword in node][:1]
        needed = [*prefix[:least], *(others if least > len(prefix) else ())]
    elif kind == "object":
        properties = as_dict(node.get("properties"))
        needed = [properties[name] for name in node.get("required", ()) if name in properties]
        optional = [
            *(part for keyword in NAMED for part in as_dict(node.get(keyword)).values()),
            *(node[keyword] for keyword in OTHERS if keyword in node),
        ]
        if (
            node.get("minProperties", 0)
            and optional
            and not any(place.parts[id(each)].types for each in optional)
        ):
            return False
    return all(place.parts[id(each)].types for each in needed)


def _type_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
    return "integer" if value == int(value) else "number"  # type: ignore[call-overload]


def is_single(schemas: object) -> bool:
    """Whether something is an array of one schema."""
    return isinstance(schemas, list) and len(schemas) == 1


def as_list(value: object) -> list[Any]:
    """An array itself, and none in place of what the compiler will refuse."""
    return value if isinstance(value, list) else []


def as_dict(value: object) -> Schema:
    """An object itself, and none in place of what the compiler will refuse."""
    return value if isinstance(value, dict) else {}
