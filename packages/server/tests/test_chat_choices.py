import pytest

from minivllm_runtime.outputs import ChoiceDelta
from minivllm_server.chat_choices import ChatChoices
from minivllm_server.protocol.chat import ChatChoice
from minivllm_server.tool_calls.hermes import HermesParser

CALL = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'


def test_without_tools_every_delta_is_an_entry():
    choices = ChatChoices()
    (empty,) = choices.of_delta(ChoiceDelta(1, "", (5,)))
    assert empty == {"index": 1, "delta": {"content": ""}, "logprobs": None, "finish_reason": None}
    (last,) = choices.of_delta(ChoiceDelta(1, "a<tool_call>", (6,), "length"))
    assert last["delta"] == {"content": "a<tool_call>"}
    assert last["finish_reason"] == "length"


def test_what_may_become_a_call_makes_no_entry_until_it_is_one():
    choices = ChatChoices(HermesParser)
    assert list(choices.of_delta(ChoiceDelta(0, CALL[:20], (5,)))) == []
    (entry,) = choices.of_delta(ChoiceDelta(0, CALL[20:], (6,), "stop"))
    (call,) = entry["delta"]["tool_calls"]
    assert (call["index"], call["function"]) == (0, {"name": "f", "arguments": "{}"})
    assert "content" not in entry["delta"]
    assert entry["finish_reason"] == "tool_calls"


def test_choices_do_not_share_a_parser():
    choices = ChatChoices(HermesParser)
    assert list(choices.of_delta(ChoiceDelta(0, "<tool_call>", (5,)))) == []
    (entry,) = choices.of_delta(ChoiceDelta(1, "text", (6,)))
    assert entry["delta"] == {"content": "text"}


@pytest.mark.parametrize(
    ("text", "content", "num_calls"),
    [(CALL, None, 1), (CALL + CALL, None, 2), (f"hi {CALL}", "hi", 1), ("hi", "hi", 0), ("", "", 0)],
)
def test_whole_answers_have_the_documented_shape(text, content, num_calls):
    entry = ChatChoices(HermesParser).whole(ChoiceDelta(0, text, (5,), "stop"))
    choice = ChatChoice.model_validate(entry)
    assert choice.message.content == content
    assert len(choice.message.tool_calls) == num_calls
    assert choice.finish_reason == ("tool_calls" if num_calls else "stop")


def test_a_client_that_wants_one_call_gets_one():
    choices = ChatChoices(HermesParser, is_parallel=False)
    entry = choices.whole(ChoiceDelta(0, CALL + CALL, (5,), "stop"))
    assert len(entry["message"]["tool_calls"]) == 1
