import pytest

from minivllm_server.tool_calls.llama3_json import Llama3JsonParser

from .reading import read

CALL = '{"name": "f", "parameters": {"x": 1}}'


@pytest.mark.parametrize(
    ("text", "num_calls"),
    [
        (CALL, 1),
        (f"\n {CALL} \n", 1),
        (f"<|python_tag|>{CALL}", 1),
        (f"{CALL}; {CALL}", 2),
        (f"{CALL}\n{CALL}", 2),
        (CALL.replace("parameters", "arguments"), 1),
        ('{"type": "function", ' + CALL[1:], 1),
        ("", 0),
        ("hello {}", 0),
        ("{", 0),
        (CALL[:15], 0),
        ('{"a": 1}', 0),
        ("<|python_tag|>print(1)", 0),
        ("<|pyth", 0),
    ],
)
def test_an_answer_is_calls_or_text(text, num_calls):
    assert read(Llama3JsonParser, *text) == ("" if num_calls else text, [("f", '{"x": 1}')] * num_calls)


def test_what_follows_calls_is_text():
    assert read(Llama3JsonParser, f"{CALL} and so on") == (" and so on", [("f", '{"x": 1}')])
