import pytest
from pydantic import TypeAdapter, ValidationError

from minivllm_server.protocol.json_schema import MAX_NODES, JsonSchema

SCHEMA = TypeAdapter(JsonSchema)


def nested(depth):
    schema = {}
    for _ in range(depth):
        schema = {"properties": schema}
    return schema


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, nested(500), {"enum": ["x"] * (MAX_NODES - 2)}])
def test_a_schema_of_a_size_that_people_write(schema):
    assert SCHEMA.validate_python(schema) == schema


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": ["x"] * MAX_NODES},
        {"enum": [["x"] * 200] * 200},
        {str(number): number for number in range(MAX_NODES)},
        {"enum": [[]] * 2_000_000},
    ],
    ids=["wide", "square", "many members", "very wide"],
)
def test_a_larger_one_is_refused(schema):
    with pytest.raises(ValidationError, match="at most 10000 values"):
        SCHEMA.validate_python(schema)
