"""Output that follows a schema: response_format, and calls that the client demands."""

import json
import logging

import httpx
import openai
import pydantic
import pytest

from .byte_tokens import EOS, byte_tokenizer, ids_of
from .harness import CONVERSATION
from .wire_client import expect_error, unwrap_error

TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}<tool_call>{% endif %}"
SERVER = {"context": 1024, "block_size": 64, "tokenizer": byte_tokenizer(chat_template=TEMPLATE)}
POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
    "required": ["x", "y"],
    "additionalProperties": False,
}
TOOL_PROMPT_LEN = len("a<tool_call>")


def schema_format(schema, strict=True):
    return {"type": "json_schema", "json_schema": {"name": "point", "strict": strict, "schema": schema}}


def tool(name, parameters=None, **fields):
    return {"type": "function", "function": {"name": name, "parameters": parameters or POINT, **fields}}


@pytest.mark.parametrize("wish", ["hello", '{"x": 1, "z": 2}', "[1, 2]", EOS])
@pytest.mark.parametrize("stream", [True, False])
def test_the_model_cannot_leave_the_schema(server, wish, stream):
    server.play([*(ids_of(wish) if isinstance(wish, str) else [wish]), *ids_of("1}"), EOS])
    body = {"response_format": schema_format(POINT), "max_tokens": 200, "temperature": 1, "seed": 1}
    if stream:
        text = server.chat_stream(**body).read_all().text()
    else:
        choice = server.chat_choice(**body)
        assert choice["finish_reason"] == "stop"
        text = choice["message"]["content"]
    assert set(json.loads(text)) == {"x", "y"}


def test_a_json_object(server):
    server.play(ids_of('{"a": [1]}', EOS))
    choice = server.chat_choice(response_format={"type": "json_object"}, max_tokens=50)
    assert json.loads(choice["message"]["content"]) == {"a": [1]}


@pytest.mark.parametrize("stream", [True, False])
def test_a_completion_can_be_json_too(server, stream):
    server.play(ids_of('{"x": 1, "y": 2}', EOS))
    body = {"prompt": "a", "response_format": schema_format(POINT), "max_tokens": 50}
    text = server.stream(**body).read_all().text() if stream else server.choice(**body)["text"]
    assert json.loads(text) == {"x": 1, "y": 2}


def test_plain_text_is_the_default(server):
    server.play(ids_of("hello", EOS))
    for response_format in (None, {"type": "text"}):
        assert server.chat_choice(response_format=response_format)["message"]["content"] == "hello"


@pytest.mark.parametrize(
    "response_format",
    [
        "json",
        {},
        {"type": "xml"},
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": {}},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": []}},
        schema_format({"type": "nothing"}),
        schema_format({"$ref": "#/nowhere"}),
    ],
    ids=lambda value: repr(value)[:60],
)
@pytest.mark.parametrize("stream", [True, False])
def test_no_format_is_400(server, response_format, stream):
    expect_error(server.chat(response_format=response_format, stream=stream, max_tokens=5), 400)
    assert server.works()


NOTHING = {"anyOf": [{"$ref": "#/$defs/nothing"}]}
DEAD_END = {
    "type": "object",
    "properties": {"x": NOTHING},
    "required": ["x"],
    "$defs": {"nothing": NOTHING},
}


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": schema_format(DEAD_END, strict=False)},
        {"response_format": schema_format(DEAD_END, strict=False), "n": 3, "logprobs": True},
        {
            "tools": [tool("f", DEAD_END, strict=False)],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "stop": "$",
        },
    ],
    ids=["format", "choices", "call"],
)
@pytest.mark.parametrize("stream", [True, False])
def test_an_output_that_comes_to_where_nothing_satisfies_its_schema_is_400(server, fields, stream, caplog):
    server.play(ids_of('{"x": 1}', EOS), prompt_len=TOOL_PROMPT_LEN if "tools" in fields else 1)
    if stream:
        with server.chat_stream(max_tokens=60, **fields) as answer:
            *chunks, last = list(answer)
            assert not answer.is_done
        assert chunks
        assert all(choice["finish_reason"] is None for chunk in chunks for choice in chunk["choices"])
        error = unwrap_error(last)
    else:
        error = expect_error(server.chat(max_tokens=60, **fields), 400)
    assert (error["type"], error["param"]) == ("invalid_request_error", "json_schema")
    assert "nothing satisfies it" in error["message"]
    assert not [record for record in caplog.records if record.levelno > logging.INFO]
    assert server.comes_to_rest()
    assert server.works()


SETS = {
    "type": "object",
    "properties": {"x": {"type": "array", "items": {}, "uniqueItems": True}},
    "required": ["x"],
}


def fields_with(schema, kind, **strict):
    """A request whose answer follows a schema, and whether it is strict about that."""
    if kind == "format":
        return {"response_format": {"type": "json_schema", "json_schema": {"schema": schema, **strict}}}
    choice = "required" if kind == "any call" else {"type": "function", "function": {"name": "f"}}
    other = tool("other")
    return {"tools": [tool("f", schema, **strict), other], "tool_choice": choice}


@pytest.mark.parametrize("kind", ["format", "named call", "any call"])
@pytest.mark.parametrize("stream", [True, False])
class TestAKeywordThatCannotBeEnforced:
    def test_is_400_with_strict(self, server, kind, stream):
        fields = fields_with(SETS, kind, strict=True)
        error = expect_error(server.chat(stream=stream, max_tokens=5, **fields), 400)
        assert (error["type"], error["param"]) == ("invalid_request_error", "json_schema")
        assert "'uniqueItems' at '/" in error["message"]
        assert "/properties/x/uniqueItems'" in error["message"]
        assert server.works()

    @pytest.mark.parametrize("strict", [{}, {"strict": None}, {"strict": False}], ids=str)
    def test_is_ignored_without_strict(self, server, kind, stream, strict):
        prompt_len = 1 if kind == "format" else TOOL_PROMPT_LEN
        text = '{"x": [1, 1]}'
        wish = f'[{{"name": "f", "parameters": {text}}}]' if kind == "any call" else text
        server.play(ids_of(wish, EOS), prompt_len=prompt_len)
        body = {"max_tokens": 100, **fields_with(SETS, kind, **strict)}
        if stream:
            answer = server.chat_stream(**body).read_all()
            calls = [piece for choice in answer.choices(0) for piece in choice["delta"].get("tool_calls", ())]
            said = answer.text() or "".join(piece["function"]["arguments"] for piece in calls)
        else:
            message = server.chat_choice(**body)["message"]
            said = message["content"] or message["tool_calls"][0]["function"]["arguments"]
        assert json.loads(said) == {"x": [1, 1]}

    @pytest.mark.parametrize("strict", ["yes", 0, []], ids=repr)
    def test_strict_is_true_false_or_null(self, server, kind, stream, strict):
        expect_error(server.chat(stream=stream, max_tokens=5, **fields_with(POINT, kind, strict=strict)), 400)
        assert server.works()


@pytest.mark.parametrize("stream", [True, False])
def test_a_strict_function_leaves_another_as_it_is(server, stream):
    server.play(ids_of('[{"name": "f", "parameters": {"x": [1, 1]}}]', EOS), prompt_len=TOOL_PROMPT_LEN)
    tools = [tool("f", SETS), tool("other", strict=True)]
    answer = server.chat(stream=stream, max_tokens=100, tools=tools, tool_choice="required")
    assert answer.status_code == 200


LIST = {
    "type": "object",
    "properties": {
        "value": {"$ref": "#/$defs/number"},
        "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    },
    "required": ["value", "next"],
    "additionalProperties": False,
    "$defs": {"number": {"type": "integer"}},
}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}], ids=str)
@pytest.mark.parametrize("strict", [True, False])
def test_arguments_that_refer_to_parts_of_their_schema(server, choice, strict):
    text = '{"value": 1, "next": {"value": 2, "next": null}}'
    wish = f'[{{"name": "f", "parameters": {text}}}]' if choice == "required" else text
    server.play(ids_of(wish, EOS), prompt_len=TOOL_PROMPT_LEN)
    tools = [tool("other"), tool("f", LIST, strict=strict)]
    (call,) = server.chat_choice(max_tokens=200, tools=tools, tool_choice=choice)["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == json.loads(text)


@pytest.mark.parametrize("where", ["title", "default", "maxItems"])
def test_an_integer_that_no_compiler_reads_is_400_with_a_reason(server, where):
    response_format = schema_format({"type": "array", "items": {"type": "null"}, where: 10**400})
    error = expect_error(server.chat(max_tokens=5, response_format=response_format), 400)
    assert "401 digits" in error["message"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_named_call(server, stream):
    server.play(ids_of('{"x": 1, "y": 2}', EOS), prompt_len=TOOL_PROMPT_LEN)
    body = {
        "tools": [tool("other"), tool("point")],
        "tool_choice": {"type": "function", "function": {"name": "point"}},
        "max_tokens": 60,
    }
    if stream:
        answer = server.chat_stream(**body).read_all()
        pieces = [piece for choice in answer.choices(0) for piece in choice["delta"].get("tool_calls", ())]
        assert [piece["index"] for piece in pieces] == [0] * len(pieces)
        assert [piece["function"].get("name") for piece in pieces] == ["point"] + [None] * (len(pieces) - 1)
        assert pieces[0]["function"]["arguments"] == ""
        arguments = "".join(piece["function"]["arguments"] for piece in pieces)
        assert answer.finish_reasons()[-1] == "tool_calls"
        assert answer.text() == ""
    else:
        choice = server.chat_choice(**body)
        (call,) = choice["message"]["tool_calls"]
        assert call["function"]["name"] == "point"
        assert choice["message"]["content"] is None
        arguments = call["function"]["arguments"]
    assert json.loads(arguments) == {"x": 1, "y": 2}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("is_parallel", [True, False])
def test_any_call_but_a_call(server, stream, is_parallel):
    call = '{"name": "point", "parameters": {"x": 1, "y": 2}}'
    server.play(ids_of(f"[{call}, {call}]" if is_parallel else f"[{call}]", EOS), prompt_len=TOOL_PROMPT_LEN)
    body = {
        "tools": [tool("other"), tool("point")],
        "tool_choice": "required",
        "parallel_tool_calls": is_parallel,
        "max_tokens": 200,
    }
    if stream:
        answer = server.chat_stream(**body).read_all()
        pieces = [piece for choice in answer.choices(0) for piece in choice["delta"].get("tool_calls", ())]
        firsts = [position for position, piece in enumerate(pieces) if "id" in piece]
        names = [pieces[position]["function"]["name"] for position in firsts]
        arguments = [
            "".join(piece["function"]["arguments"] for piece in pieces if piece["index"] == index)
            for index in range(len(firsts))
        ]
        finish_reason, content = answer.finish_reasons()[-1], answer.text() or None
    else:
        choice = server.chat_choice(**body)
        names = [call["function"]["name"] for call in choice["message"]["tool_calls"]]
        arguments = [call["function"]["arguments"] for call in choice["message"]["tool_calls"]]
        finish_reason, content = choice["finish_reason"], choice["message"]["content"]
    assert names == ["point"] * (2 if is_parallel else 1)
    assert [json.loads(each) for each in arguments] == [{"x": 1, "y": 2}] * len(names)
    assert (finish_reason, content) == ("tool_calls", None)


def test_the_official_client_parses_into_its_model(server):
    class Point(pydantic.BaseModel):
        x: int
        y: int

    server.play(ids_of('{"x": 1, "y": 2}', EOS))
    with (
        httpx.Client(trust_env=False) as http_client,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", http_client=http_client) as api,
    ):
        answer = api.chat.completions.parse(
            model="scripted", messages=CONVERSATION, response_format=Point, temperature=0, max_tokens=60
        )
    assert answer.choices[0].message.parsed == Point(x=1, y=2)
