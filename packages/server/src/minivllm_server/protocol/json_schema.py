"""JSON schemas in requests: of a function's arguments, and of a whole answer."""

from typing import Annotated, Any

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

MAX_NODES = 10_000
"""Values in a schema: a bound on what copying, rendering and compiling it can cost."""


def _check_size(schema: dict[str, Any]) -> dict[str, Any]:
    pending: list[Any] = [schema]
    num_nodes = 0
    while pending and num_nodes <= MAX_NODES:
        value = pending.pop()
        children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        num_nodes += 1
        if len(children) > MAX_NODES:
            num_nodes += len(children)
        else:
            pending.extend(children)
    if num_nodes > MAX_NODES:
        raise PydanticCustomError(
            "schema_size", "a schema may have at most {limit} values", {"limit": MAX_NODES}
        )
    return schema


JsonSchema = Annotated[dict[str, Any], AfterValidator(_check_size)]
