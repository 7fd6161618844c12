from minivllm_runtime.outputs import ChoiceDelta
from minivllm_server.protocol.usage import UsageCounter


def test_completion_tokens_are_summed_over_choices_and_deltas():
    counter = UsageCounter(num_prompt_tokens=7, n=2)
    counter.add([ChoiceDelta(0, "a", (1, 2)), ChoiceDelta(1, "b", (3,))])
    counter.add([ChoiceDelta(0, "", (9,), "stop")])
    usage = counter.usage()
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (7, 4, 11)


def test_cached_tokens_are_those_of_the_first_choice_of_each_prompt():
    counter = UsageCounter(num_prompt_tokens=40, n=2)
    counter.add(
        [ChoiceDelta(index, "", (), num_cached_tokens=cached) for index, cached in enumerate((4, 16, 8, 16))]
    )
    counter.add([ChoiceDelta(0, "", (), num_cached_tokens=4)])
    assert counter.usage().prompt_tokens_details.cached_tokens == 12
