import pytest

from minivllm_runtime.engine.collect import collect
from minivllm_runtime.messages import EngineRequest
from minivllm_runtime.outputs import ChoiceDelta, CompletionOutput, RequestOutput, TokenLogprob


def request(*prompt_token_ids):
    return EngineRequest(request_id="r", prompt_token_ids=prompt_token_ids, max_tokens=4)


@pytest.mark.parametrize("prompt", ["one", None])
def test_deltas_become_an_output_in_the_order_of_choices(prompt):
    deltas = [
        ChoiceDelta(2, "c", (30,), "length", "!"),
        ChoiceDelta(0, "a", (10,), None, None, 8),
        ChoiceDelta(1, "b", (20,), "stop"),
        ChoiceDelta(0, "A", (11, 12), "stop", 12, 8),
    ]
    assert collect("s", [request(1, 2)] * 3, prompt, deltas) == RequestOutput(
        "s",
        prompt,
        (1, 2),
        (
            CompletionOutput(0, "aA", (10, 11, 12), "stop", 12),
            CompletionOutput(1, "b", (20,), "stop"),
            CompletionOutput(2, "c", (30,), "length", "!"),
        ),
        8,
    )


def test_log_probabilities_go_to_their_choice_and_their_prompt():
    one, two = (TokenLogprob(i, "x", b"x", -1.0, 1, 0) for i in (10, 20))
    deltas = [
        ChoiceDelta(0, "a", (10,), "stop", logprobs=(one,), prompt_logprobs=(two, one)),
        ChoiceDelta(1, "b", (20,), "stop", logprobs=(two,)),
    ]
    output = collect("s", [request(20, 10), request(20, 10)], None, deltas)
    assert [choice.logprobs for choice in output.outputs] == [(one,), (two,)]
    assert output.prompt_logprobs == (two, one)


@pytest.mark.parametrize("deltas", [[], [ChoiceDelta(0, "a", (1,))]], ids=["missing", "unfinished"])
def test_an_incomplete_submission_is_not_taken_for_a_result(deltas):
    with pytest.raises(AssertionError):
        collect("s", [request(1)], None, deltas)
