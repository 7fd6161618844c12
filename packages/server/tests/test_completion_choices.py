from minivllm_runtime.outputs import ChoiceDelta, TokenLogprob
from minivllm_server.completion_choices import CompletionChoices
from minivllm_server.protocol.completion import CompletionChoice


def entries(choices, *deltas):
    """What the deltas become, in the declared shape."""
    made = [entry for delta in deltas for entry in choices.of_delta(delta)]
    for entry in made:
        CompletionChoice.model_validate(entry)
    return made


def logprob_of(text, offset):
    return TokenLogprob(ord(text), text, text.encode(), -1.0, 1, offset)


def test_an_echo_opens_each_choice_once_with_its_own_prompt():
    choices = CompletionChoices(2, ["one ", "two "], has_logprobs=False)
    deltas = [
        ChoiceDelta(0, "a", (97,)),
        ChoiceDelta(3, "b", (98,)),
        ChoiceDelta(0, "c", (99,), "stop"),
        ChoiceDelta(1, "", (), "length"),
    ]
    made = entries(choices, *deltas)
    assert [(entry["index"], entry["text"], entry["finish_reason"]) for entry in made] == [
        (0, "one a", None),
        (3, "two b", None),
        (0, "c", "stop"),
        (1, "one ", "length"),
    ]
    assert {entry["logprobs"] for entry in made} == {None}


def test_log_probabilities_of_a_prompt_open_each_of_its_choices_and_shift_what_follows():
    choices = CompletionChoices(2, ["xy"], has_logprobs=True)
    prompt = (logprob_of("x", 0), logprob_of("y", 1))
    deltas = [
        ChoiceDelta(0, "a", (97,), logprobs=(logprob_of("a", 0),), prompt_logprobs=prompt),
        ChoiceDelta(1, "b", (98,), logprobs=(logprob_of("b", 0),)),
        ChoiceDelta(0, "c", (99,), logprobs=(logprob_of("c", 1),)),
    ]
    made = [
        (entry["logprobs"]["tokens"], entry["logprobs"]["text_offset"]) for entry in entries(choices, *deltas)
    ]
    assert made == [(["x", "y", "a"], [0, 1, 2]), (["x", "y", "b"], [0, 1, 2]), (["c"], [3])]
