"""Tools: shown to the model, called by it, told from text, and read by the official client."""

import json

import httpx
import openai
import pydantic
import pytest

from .byte_tokens import EOS, byte_tokenizer, ids_of
from .harness import CONVERSATION
from .wire_client import expect_error

TEMPLATE = (
    "{% for m in messages %}{{ m.content or '' }}"
    "{% for call in m.tool_calls or [] %}[{{ call.function.name }} {{ call.function.arguments.x }}]{% endfor %}"
    "{% endfor %}{% if tools %}<tool_call>{{ tools | tojson | length }}{% endif %}"
)
SERVER = {"context": 4096, "block_size": 64, "tokenizer": byte_tokenizer(chat_template=TEMPLATE)}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather.",
        "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}
TWO_CALLS = (
    'I look.\n<tool_call>\n{"name": "weather", "arguments": {"x": 5}}\n</tool_call>\n'
    '<tool_call>{"name": "clock", "arguments": {}}</tool_call>'
)


def prompt_length():
    """Tokens of a conversation with both tools."""
    return len("a<tool_call>") + len(str(len(json.dumps([WEATHER, CLOCK]))))


@pytest.fixture
def ask(server):
    """Asks with tools; the model says `text`."""

    def ask(text, **body):
        server.play(ids_of(text, EOS), prompt_len=prompt_length())
        return server.chat(**{"tools": [WEATHER, CLOCK], **body})

    return ask


def stream_of(server, text, **body):
    server.play(ids_of(text, EOS), prompt_len=prompt_length())
    return server.chat_stream(**{"tools": [WEATHER, CLOCK], **body}).read_all()


def calls_in(message):
    return [
        (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in message["tool_calls"]
    ]


@pytest.mark.parametrize("choice", [None, "auto"])
def test_calls_are_told_from_text(ask, choice):
    answer = ask(TWO_CALLS, tool_choice=choice)
    assert answer.status_code == 200, answer.text
    (entry,) = answer.json()["choices"]
    assert entry["finish_reason"] == "tool_calls"
    assert entry["message"]["content"] == "I look."
    assert calls_in(entry["message"]) == [("weather", {"x": 5}), ("clock", {})]
    ids = {call["id"] for call in entry["message"]["tool_calls"]}
    assert len(ids) == 2
    assert all(call["type"] == "function" for call in entry["message"]["tool_calls"])


def test_only_calls_leave_no_content(ask):
    message = ask('<tool_call>{"name": "clock", "arguments": {}}</tool_call>').json()["choices"][0]["message"]
    assert message["content"] is None
    assert calls_in(message) == [("clock", {})]


def test_an_answer_without_calls_is_an_answer(ask):
    (entry,) = ask("No <tool").json()["choices"]
    assert entry["finish_reason"] == "stop"
    assert entry["message"]["content"] == "No <tool"
    assert "tool_calls" not in entry["message"]


def test_one_call_at_most_where_the_client_wants_one(ask):
    message = ask(TWO_CALLS, parallel_tool_calls=False).json()["choices"][0]["message"]
    assert calls_in(message) == [("weather", {"x": 5})]


def pieces_of(stream):
    return [piece for choice in stream.choices(0) for piece in choice["delta"].get("tool_calls", ())]


def test_a_stream_of_calls(server):
    stream = stream_of(server, TWO_CALLS)
    assert stream.text() == "I look."
    assert stream.finish_reasons()[-1] == "tool_calls"
    assert stream.is_done
    pieces = pieces_of(stream)
    assert [piece["index"] for piece in pieces] == sorted(piece["index"] for piece in pieces)
    for index, name, arguments in [(0, "weather", '{"x": 5}'), (1, "clock", "{}")]:
        first, *others = (piece for piece in pieces if piece["index"] == index)
        assert first.pop("id").startswith("call_")
        assert first == {"index": index, "type": "function", "function": {"name": name, "arguments": ""}}
        assert all(piece.keys() == {"index", "function"} for piece in others)
        assert "".join(piece["function"]["arguments"] for piece in others) == arguments


def test_arguments_are_sent_while_the_model_writes_them(server):
    text = '<tool_call>{"name": "weather", "arguments": {"x": 5'
    server.play(ids_of(text, "}}", EOS), prompt_len=prompt_length())
    server.model.pace.hold()
    server.model.pace.allow(len(text))
    with server.chat_stream(tools=[WEATHER, CLOCK]) as stream:
        while not (pieces := pieces_of(stream)) or pieces[-1]["function"]["arguments"][-1:] != "5":
            next(iter(stream))
        server.model.pace.release()
        assert all(stream)  # reads the rest
    assert "".join(piece["function"]["arguments"] for piece in pieces_of(stream)) == '{"x": 5}'


def test_a_call_that_is_cut_short_in_its_name_is_text(ask):
    (entry,) = ask(TWO_CALLS, max_tokens=40).json()["choices"]
    assert entry["finish_reason"] == "length"
    assert entry["message"]["content"] == TWO_CALLS[:40]
    assert "tool_calls" not in entry["message"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_call_that_is_cut_short_in_its_arguments_keeps_them(server, ask, stream):
    num_tokens = TWO_CALLS.index("5")
    if stream:
        answer = stream_of(server, TWO_CALLS, max_tokens=num_tokens)
        arguments = "".join(piece["function"]["arguments"] for piece in pieces_of(answer))
        finish_reason = answer.finish_reasons()[-1]
    else:
        (entry,) = ask(TWO_CALLS, max_tokens=num_tokens).json()["choices"]
        (call,) = entry["message"]["tool_calls"]
        arguments, finish_reason = call["function"]["arguments"], entry["finish_reason"]
    assert (arguments, finish_reason) == ('{"x": ', "length")


def test_tools_that_may_not_be_called_are_not_shown(server):
    server.play(ids_of("x", EOS))
    answer = server.chat(tools=[WEATHER], tool_choice="none")
    assert answer.json()["usage"]["prompt_tokens"] == 1
    assert answer.json()["choices"][0]["message"]["content"] == "x"


def test_calls_and_results_of_earlier_turns_reach_the_template(server):
    history = [
        *CONVERSATION,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"x": 5}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]
    answer = server.chat(messages=history, max_tokens=1)
    assert answer.json()["usage"]["prompt_tokens"] == len("a[weather 5]sunny")


@pytest.mark.parametrize("arguments", ["", "not json", "[1]", "null", '{"x": '])
def test_a_conversation_goes_on_after_a_call_whose_arguments_are_no_object(server, arguments):
    call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    answer = server.chat(messages=messages, max_tokens=1)
    assert answer.json()["usage"]["prompt_tokens"] == len("[weather ]")


@pytest.mark.parametrize("max_tokens", [1, 3, 12])
def test_a_demanded_call_that_is_cut_short_before_its_arguments_is_no_content(server, max_tokens):
    wish = ids_of('[{"name": "weather", "parameters": {"x": 5}}]', EOS)
    fields = {"tools": [WEATHER, CLOCK], "tool_choice": "required", "max_tokens": max_tokens}
    server.play(wish, prompt_len=prompt_length())
    choice = server.chat_choice(**fields)
    assert choice["finish_reason"] == "length"
    assert not choice["message"]["content"]
    stream = server.chat_stream(**fields).read_all()
    assert stream.text() == ""
    assert stream.finish_reasons()[-1] == "length"


def test_what_is_a_function_need_not_say_so(server):
    tool = {"function": {"name": "clock"}}
    server.play(ids_of("{}", EOS), prompt_len=len("a<tool_call>") + len(str(len(json.dumps([CLOCK])))))
    choice = server.chat_choice(tools=[tool], tool_choice={"function": {"name": "clock"}}, max_tokens=9)
    assert calls_in(choice["message"]) == [("clock", {})]


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": {}},
        {"tools": [{}]},
        {"tools": [{"type": "function"}]},
        {"tools": [{"type": "search", "function": {"name": "f"}}]},
        {"tools": [{"type": "function", "function": {"name": "no name"}}]},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
        {"tools": [CLOCK] * 129},
        {"tool_choice": "sometimes"},
        {"tool_choice": "required", "tools": []},
        {"tool_choice": {"type": "function", "function": {"name": "other"}}},
        {"tool_choice": {"type": "function"}},
        {"parallel_tool_calls": 1},
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "x", "type": "function"}]}]},
    ],
    ids=lambda fields: repr(fields)[:60],
)
def test_malformed_tools_are_400(server, fields):
    expect_error(server.chat(**{"tools": [WEATHER], **fields}), 400)
    assert server.works()


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "other"}}], ids=str)
@pytest.mark.parametrize("tools", [None, [], [WEATHER]], ids=repr)
def test_a_choice_of_no_tool_is_to_blame(server, choice, tools):
    if choice != "required" or not tools:
        assert expect_error(server.chat(tools=tools, tool_choice=choice), 400)["param"] == "tool_choice"


def test_a_template_without_tools_refuses_them(launch):
    server = launch()
    assert expect_error(server.chat(tools=[CLOCK]), 400)["param"] == "tools"
    assert server.chat(tools=[], max_tokens=1).status_code == 200


class TestOfficialClient:
    @pytest.fixture
    def api(self, server):
        with (
            httpx.Client(trust_env=False) as http_client,
            openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", http_client=http_client) as api,
        ):
            yield api

    def body(self, server, text=TWO_CALLS):
        server.play(ids_of(text, EOS), prompt_len=prompt_length())
        return {"model": "scripted", "messages": CONVERSATION, "tools": [WEATHER, CLOCK], "temperature": 0}

    def test_a_whole_answer(self, server, api):
        message = api.chat.completions.create(**self.body(server)).choices[0].message
        assert [call.function.name for call in message.tool_calls] == ["weather", "clock"]

    def test_the_accumulating_stream_helper(self, server, api):
        with api.chat.completions.stream(**self.body(server)) as stream:
            events = list(stream)
            (choice,) = stream.get_final_completion().choices
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content == "I look."
        calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls]
        assert calls == [("weather", '{"x": 5}'), ("clock", "{}")]
        done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
        assert [(event.name, event.arguments) for event in done] == calls
        deltas = [event for event in events if event.type == "tool_calls.function.arguments.delta"]
        assert "".join(event.arguments_delta for event in deltas if event.index == 0) == '{"x": 5}'

    def test_a_strict_tool_parses_while_it_streams(self, server, api):
        class weather(pydantic.BaseModel):
            x: int

        body = self.body(server) | {"tools": [openai.pydantic_function_tool(weather)]}
        server.play(
            ids_of(TWO_CALLS, EOS), prompt_len=len("a<tool_call>") + len(str(len(json.dumps(body["tools"]))))
        )
        with api.chat.completions.stream(**body) as stream:
            call, _ = stream.get_final_completion().choices[0].message.tool_calls
        assert call.function.parsed_arguments == weather(x=5)

    def test_accumulating_by_hand(self, server, api):
        text = '<tool_call>{"arguments": {"x": 1}, "name": "weather"}</tool_call>' + TWO_CALLS[8:]
        calls = []
        for chunk in api.chat.completions.create(**self.body(server, text), stream=True):
            for piece in chunk.choices[0].delta.tool_calls or ():
                if piece.id:
                    calls.append([piece.function.name, ""])
                calls[piece.index][1] += piece.function.arguments
        assert calls == [["weather", '{"x": 1}'], ["weather", '{"x": 5}'], ["clock", "{}"]]
