import json

from minivllm_server.tool_calls.forced import CallListParser, NamedCallParser, call_list_schema

from .reading import read


def test_the_arguments_of_a_named_call_come_as_they_are_written():
    parser = NamedCallParser("f")
    pieces = [piece for text in ("", '{"x"', ":1}") for piece in parser.push(text).calls]
    assert pieces == [("f", ""), (None, '{"x"'), (None, ":1}")]
    assert parser.finish() == ("", ())


def test_a_list_of_calls():
    text = '[{"name": "f", "parameters": {"x": 1}},\n {"name": "g", "parameters": {}}]'
    assert read(CallListParser, *text) == ("", [("f", '{"x": 1}'), ("g", "{}")])


def test_a_list_that_was_cut_short_in_arguments_keeps_them():
    assert read(CallListParser, '[{"name": "f", "parameters": {"x": [') == ("", [("f", '{"x": [')])


def test_a_list_that_was_cut_short_before_them_is_nothing():
    assert read(CallListParser, '[{"name": "f", "par') == ("", [])


def test_references_lead_to_where_the_parameters_are():
    values = {"const": {"$ref": "#"}, "default": {"$ref": "#/a"}}
    node = {
        "type": "object",
        "properties": {"next": {"$ref": "#"}, "$ref": {"$ref": "#/$defs/x"}, "v": values},
    }
    parameters = {**node, "$defs": {"x": {"type": "integer"}}}
    before = json.dumps(parameters)
    schema = call_list_schema([("f", {}), ("g", parameters)], is_parallel=True)
    place = "#/items/anyOf/1/properties/parameters"
    moved = schema["items"]["anyOf"][1]["properties"]["parameters"]
    assert moved["properties"]["next"] == {"$ref": place}
    assert moved["properties"]["$ref"] == {"$ref": f"{place}/$defs/x"}
    assert moved["properties"]["v"] == values
    assert json.dumps(parameters) == before


def test_the_schema_of_a_list():
    schema = call_list_schema([("f", {"type": "object"}), ("g", {})], is_parallel=False)
    assert (schema["minItems"], schema["maxItems"]) == (1, 1)
    names = [each["properties"]["name"]["const"] for each in schema["items"]["anyOf"]]
    assert names == ["f", "g"]
    assert "maxItems" not in call_list_schema([("f", {})], is_parallel=True)
