import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_runtime.engine.output_joiner import OutputJoiner
from minivllm_runtime.messages import TokenOutput
from minivllm_scheduler import FinishReason


def output(request_id, *token_ids, finish_reason=None):
    return TokenOutput(request_id, token_ids, finish_reason, num_cached_tokens=2, error=None)


@given(st.lists(st.integers(0, 9), max_size=100))
def test_joined_outputs_have_the_same_ids_and_the_same_end(token_ids):
    joiner = OutputJoiner()
    joiner.hold(["a"])
    steps = [output("a", token_id) for token_id in token_ids]
    steps.append(output("a", 10, finish_reason=FinishReason.LENGTH))
    ready = [each for step in steps for each in joiner.push([step])]
    assert [i for each in ready for i in each.token_ids] == [*token_ids, 10]
    assert [each.finish_reason for each in ready] == [None] * (len(ready) - 1) + [FinishReason.LENGTH]
    assert len(ready) <= 1 + len(steps) / 32
    assert all(each.num_cached_tokens == 2 for each in ready)


@pytest.mark.parametrize("num_at_once", [1, 2, 64])
def test_requests_take_turns_however_they_arrive(num_at_once):
    names = [str(index) for index in range(64)]
    joiner = OutputJoiner()
    for first in range(0, 64, num_at_once):
        joiner.hold(names[first : first + num_at_once])
        joiner.push([output(name, 1) for name in names[: first + num_at_once]])
    counts = [len(joiner.push([output(name, 1) for name in names])) for _ in range(96)]
    assert set(counts) == {2}


def test_requests_that_are_not_held_pass_in_their_order():
    joiner = OutputJoiner()
    joiner.hold(["b"])
    outputs = [output("a", 1), output("b", 2), output("c", 3)]
    assert joiner.push(outputs) == [outputs[0], outputs[2]]


def test_what_was_held_of_a_forgotten_request_does_not_reach_a_later_one_of_its_name():
    joiner = OutputJoiner()
    joiner.hold(["a"])
    joiner.push([output("a", 1)])
    joiner.forget(["a", "never seen"])
    joiner.hold(["a"])
    (joined,) = joiner.push([output("a", 2, finish_reason=FinishReason.STOP)])
    assert joined.token_ids == (2,)
