import pytest

from minivllm_runtime.engine.collect import collect
from minivllm_runtime.messages import EngineRequest
from minivllm_runtime.outputs import ChoiceDelta, CompletionOutput, RequestOutput, TokenLogprob


def request(*prompt_token_ids):
    return EngineRequest(request_id="r", prompt_token_ids=prompt_token_ids, max_tokens=4)


def test_deltas_become_outputs_in_the_order_of_prompts_and_choices():
    requests = [request(1), request(1), request(2, 3), request(2, 3)]
    deltas = [
        ChoiceDelta(3, "d", (40,), "length"),
        ChoiceDelta(0, "a", (10,), None, None, 8),
        ChoiceDelta(2, "c", (30,), "stop", "!"),
        ChoiceDelta(1, "b", (20,), "stop"),
        ChoiceDelta(0, "A", (11, 12), "stop", 12, 8),
    ]
    assert collect("s", requests, ["one", None], deltas) == (
        RequestOutput(
            "s",
            "one",
            (1,),
            (CompletionOutput(0, "aA", (10, 11, 12), "stop", 12), CompletionOutput(1, "b", (20,), "stop")),
            8,
        ),
        RequestOutput(
            "s",
            None,
            (2, 3),
            (CompletionOutput(0, "c", (30,), "stop", "!"), CompletionOutput(1, "d", (40,), "length")),
        ),
    )


def test_log_probabilities_go_to_their_choice_and_their_prompt():
    one, two = (TokenLogprob(i, "x", b"x", -1.0, 1, 0) for i in (10, 20))
    deltas = [
        ChoiceDelta(0, "a", (10,), "stop", logprobs=(one,), prompt_logprobs=(two, one)),
        ChoiceDelta(1, "b", (20,), "stop", logprobs=(two,)),
    ]
    (output,) = collect("s", [request(20, 10), request(20, 10)], [None], deltas)
    assert [choice.logprobs for choice in output.outputs] == [(one,), (two,)]
    assert output.prompt_logprobs == (two, one)


@pytest.mark.parametrize("deltas", [[], [ChoiceDelta(0, "a", (1,))]], ids=["missing", "unfinished"])
def test_an_incomplete_submission_is_not_taken_for_a_result(deltas):
    with pytest.raises(AssertionError):
        collect("s", [request(1)], [None], deltas)
