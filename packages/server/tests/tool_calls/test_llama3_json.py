import json

import pytest

from minivllm_server.tool_calls.llama3_json import Llama3JsonParser

CALL = '{"name": "f", "parameters": {"x": 1}}'


def parse(text, size):
    parser = Llama3JsonParser()
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    parsed = [*(parser.push(piece) for piece in pieces), parser.finish()]
    content = "".join(each.content for each in parsed)
    return content, [(call.name, json.loads(call.arguments)) for each in parsed for call in each.calls]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("text", "num_calls"),
    [
        (CALL, 1),
        (f"\n {CALL} \n", 1),
        (f"<|python_tag|>{CALL}", 1),
        (f"{CALL}; {CALL}", 2),
        (f"{CALL}\n{CALL}", 2),
        (CALL.replace("parameters", "arguments"), 1),
        ("", 0),
        ("hello {}", 0),
        ("{", 0),
        (CALL[:-1], 0),
        (f"{CALL} and so on", 0),
        ('{"a": 1}', 0),
        ("<|python_tag|>print(1)", 0),
        ("<|pyth", 0),
    ],
)
def test_an_answer_is_calls_or_text(text, num_calls, size):
    content, calls = parse(text, size)
    assert calls == [("f", {"x": 1})] * num_calls
    assert content == ("" if num_calls else text)


def test_text_is_shown_at_once():
    assert Llama3JsonParser().push("hello").content == "hello"
