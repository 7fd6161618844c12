import pytest
from pydantic import ValidationError

from minivllm_server.protocol.chat import ChatRequest


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
