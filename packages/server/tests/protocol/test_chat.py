import pytest
from pydantic import ValidationError

from minivllm_server.protocol.chat import MAX_TOOL_CALLS, ChatRequest


def parse(**fields):
    return ChatRequest.model_validate({"messages": [{"role": "user", "content": "hi"}], **fields})


@pytest.mark.parametrize(
    ("content", "joined"),
    [
        ("ab", "ab"),
        ("", ""),
        ([], ""),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
    ],
)
def test_parts_of_text_are_one_text(content, joined):
    (message,) = parse(messages=[{"role": "user", "content": content, "unknown": 1}]).messages
    assert message.to_template() == {"role": "user", "content": joined}


def test_a_name_reaches_the_template():
    (message,) = parse(messages=[{"role": "user", "content": "a", "name": "Ann"}]).messages
    assert message.to_template() == {"role": "user", "content": "a", "name": "Ann"}


@pytest.mark.parametrize(
    "part", [{"type": "image_url"}, {"type": "text"}, {"type": "text", "text": 1}, "a", {}]
)
def test_other_parts_are_refused(part):
    with pytest.raises(ValidationError) as caught:
        parse(messages=[{"role": "user", "content": [part]}])
    assert caught.value.errors()[0]["loc"] == ("messages", 0, "content")


@pytest.mark.parametrize(
    ("fields", "max_tokens"),
    [
        ({}, None),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 5}, 5),
        ({"max_completion_tokens": 5, "max_tokens": 7}, 5),
    ],
)
def test_the_newer_name_of_the_limit_wins(fields, max_tokens):
    assert parse(**fields).sampling_params().max_tokens == max_tokens


CALL = {"id": "c", "function": {"name": "f", "arguments": "{}"}}


def calls(*numbers):
    return [{"role": "assistant", "tool_calls": [CALL] * number} for number in numbers]


def test_calls_count_over_all_messages():
    messages = parse(messages=calls(MAX_TOOL_CALLS // 2, MAX_TOOL_CALLS // 2)).messages
    assert [len(message.tool_calls) for message in messages] == [MAX_TOOL_CALLS // 2] * 2
    with pytest.raises(ValidationError, match=f"at most {MAX_TOOL_CALLS} tool calls"):
        parse(messages=calls(MAX_TOOL_CALLS // 2, MAX_TOOL_CALLS // 2 + 1))


def test_many_wrong_calls_are_one_violation():
    with pytest.raises(ValidationError) as caught:
        parse(messages=[{"role": "assistant", "tool_calls": [5] * 100}])
    assert [error["loc"] for error in caught.value.errors()] == [("messages", 0, "tool_calls", 0)]
