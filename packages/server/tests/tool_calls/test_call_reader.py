import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_server.tool_calls.call_reader import CallReader

from .reading import JSON_OBJECTS, TRICKY_TEXT, cut, joined


def read(pieces):
    """The calls, what is held in the end, and what follows the call."""
    reader = CallReader()
    calls = []
    for position, piece in enumerate(pieces):
        calls += reader.push(piece)
        if reader.rest is not None:
            return joined(calls), reader.held, reader.rest + "".join(pieces[position + 1 :])
    return joined(calls), reader.held, None


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("text", "arguments", "rest"),
    [
        ('{"name": "f", "arguments": {"x": [{}]}}', '{"x": [{}]}', ""),
        ('{"name":"f","parameters":{}}', "{}", ""),
        ('{ "type" : "function" ,\n "name" : "f" , "arguments" : {"a"  : 1} } ', '{"a"  : 1}', " "),
        ('{"name": "f", "arguments": {"x": "}\\"}\\\\"}} rest', '{"x": "}\\"}\\\\"}', " rest"),
        ('{"name": "\\u0066", "arguments": {"x": "\\u00e9é"}};', '{"x": "\\u00e9é"}', ";"),
        ('{"name": "f", "arguments": {}, "id": {"y": "}"}}.', "{}", "."),
        ('{"name": "f", "arguments": {} </tool_call>', "{}", "</tool_call>"),
        ('{"name": "f", "arguments": {}, "id": </tool_call>', "{}", "</tool_call>"),
        ('{"name": "f", "arguments": {"x": 1</tool_call>', '{"x": 1', "</tool_call>"),
        ('{"name": "f", "arguments": {"x": None}}', '{"x": None}', ""),
    ],
)
def test_arguments_after_the_name_are_as_they_were_written(text, arguments, rest, size):
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    assert read(pieces) == ([("f", arguments)], "", rest)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"arguments": {"x":  1}, "name": "f"}', '{"x": 1}'),
        ('{"name": "f", "id": 5, "arguments": {}}', "{}"),
        (json.dumps({"id": "x" * 2000, "name": "f", "arguments": {}}), "{}"),
    ],
    ids=lambda text: text[:30],
)
def test_in_any_other_order_a_call_comes_whole(text, arguments):
    reader = CallReader()
    assert reader.push(text[:-1]) == ()
    assert joined(reader.push("}")) == [("f", arguments)]
    assert reader.held == ""


@pytest.mark.parametrize(
    "text",
    [
        '{"x": 1}',
        '{"name": 5, "arguments": {}}',
        '{"name": "f"}',
        '{"name": "f", "arguments": []}',
        '{"name": "f", "arguments": "{}"}',
        '{"type": "function", "arguments": {}}',
        '{"name": "\\q", "arguments": {}}',
        '{"arguments": {"x": NaN}, "name": "f"}',
        '{"arguments": {"x": 1e999}, "name": "f"}',
        '{"arguments": {"x": oops}, "name": "f"}',
        '{"name": "f", arguments: {}}',
    ],
)
def test_what_is_no_call_is_held_to_its_end(text):
    assert read(list(text + "rest")) == ([], text, "rest")


@pytest.mark.parametrize("text", ['{"name": "f", "argum', '{"a": "}', "{" * 2000, '{"a":' * 20_000])
def test_what_breaks_off_before_it_is_a_call_is_held(text):
    assert read([text]) == ([], text, None)


def test_nesting_without_measure_is_no_call():
    text = '{"a":' * 20_000 + "1" + "}" * 20_000
    assert read([text]) == ([], text, "")


def test_arguments_are_never_late():
    head, arguments = '{"name": "f", "arguments": ', '{"x": "a\\u00e9 {"}'
    reader = CallReader()
    assert reader.push(head) == ()
    assert reader.push("{") == (("f", ""), (None, "{"))
    for char in arguments[1:]:
        assert reader.push(char) == ((None, char),)


@given(st.data(), TRICKY_TEXT, JSON_OBJECTS, st.booleans(), st.booleans())
def test_any_call_is_read_however_it_comes(data, name, arguments, is_ascii, is_name_first):
    members = {"name": name, "arguments": arguments}
    if not is_name_first:
        members = dict(reversed(members.items()))
    text = json.dumps(members, ensure_ascii=is_ascii)
    calls, held, rest = read(data.draw(cut(text + " rest")))
    assert [(called, json.loads(written)) for called, written in calls] == [(name, arguments)]
    assert (held, rest) == ("", " rest")
    if is_name_first:
        assert calls[0][1] == json.dumps(arguments, ensure_ascii=is_ascii)
