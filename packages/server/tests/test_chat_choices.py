from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_runtime.outputs import ChoiceDelta, TokenLogprob
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
    assert list(choices.of_delta(ChoiceDelta(0, "Hm. " + CALL[:20], (5,)))) == [
        {"index": 0, "delta": {"content": "Hm."}, "logprobs": None, "finish_reason": None}
    ]
    first, second = choices.of_delta(ChoiceDelta(0, CALL[20:], (6,), "stop"))
    (call,) = first["delta"].pop("tool_calls")
    assert first == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": None}
    assert call.pop("id").startswith("call_")
    assert call == {"index": 0, "type": "function", "function": {"name": "f", "arguments": ""}}
    assert second["delta"] == {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}
    assert second["finish_reason"] == "tool_calls"


def test_log_probabilities_come_once():
    logprobs = (TokenLogprob(5, "a", b"a", -1.0, 1, 0),)
    choices = ChatChoices(HermesParser)
    entries = list(choices.of_delta(ChoiceDelta(0, f"Hm.{CALL}", (5,), "stop", logprobs=logprobs)))
    assert [entry["logprobs"] is not None for entry in entries] == [True, False, False]
    (held,) = ChatChoices(HermesParser).of_delta(ChoiceDelta(0, "<tool", (5,), logprobs=logprobs))
    assert (held["delta"], len(held["logprobs"]["content"])) == ({}, 1)


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


@pytest.mark.parametrize("size", [1, 1000])
def test_a_client_that_wants_one_call_gets_one(size):
    text = CALL.replace("{}", '{"x": 1}') + CALL
    choices = ChatChoices(HermesParser, is_parallel=False)
    entries = [
        entry
        for start in range(0, len(text), size)
        for entry in choices.of_delta(ChoiceDelta(0, text[start : start + size], (5,)))
    ]
    (last,) = choices.of_delta(ChoiceDelta(0, "", (6,), "stop"))
    pieces = [piece for entry in entries for piece in entry["delta"]["tool_calls"]]
    assert {piece["index"] for piece in pieces} == {0}
    assert "".join(piece["function"]["arguments"] for piece in pieces) == '{"x": 1}'
    assert last["finish_reason"] == "tool_calls"
    whole = ChatChoices(HermesParser, is_parallel=False).whole(ChoiceDelta(0, text, (5,), "stop"))
    assert [call["function"]["arguments"] for call in whole["message"]["tool_calls"]] == ['{"x": 1}']


@pytest.mark.parametrize(("finish_reason", "told"), [("stop", "tool_calls"), ("length", "length")])
def test_a_call_that_is_cut_short_is_one(finish_reason, told):
    entry = ChatChoices(HermesParser).whole(ChoiceDelta(0, CALL[:-14], (5,), finish_reason))
    assert [call["function"]["arguments"] for call in entry["message"]["tool_calls"]] == ["{"]
    assert entry["finish_reason"] == told


@given(
    st.lists(st.sampled_from([CALL, "hi ", "<tool_call>", '{"name": "f", "arguments": {', "}"])), st.data()
)
def test_a_stream_accumulates_to_the_whole_answer(parts, data):
    text = "".join(parts)
    whole = ChatChoices(HermesParser).whole(ChoiceDelta(0, text, (5,), "stop"))
    choices = ChatChoices(HermesParser)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    deltas = [ChoiceDelta(0, text[a:b], (5,)) for a, b in pairwise([0, *cuts, len(text)])]
    entries = [
        entry for delta in [*deltas, ChoiceDelta(0, "", (6,), "stop")] for entry in choices.of_delta(delta)
    ]
    assert "".join(entry["delta"].get("content", "") for entry in entries) == (
        whole["message"]["content"] or ""
    )
    calls = []
    for piece in (piece for entry in entries for piece in entry["delta"].get("tool_calls", ())):
        if piece["index"] == len(calls):
            calls.append(dict(piece["function"]))
        else:
            calls[piece["index"]]["arguments"] += piece["function"]["arguments"]
    assert calls == [call["function"] for call in whole["message"].get("tool_calls", ())]
    assert [entry["finish_reason"] for entry in entries][-1] == whole["finish_reason"]
