from hypothesis import given
from hypothesis import strategies as st

from minivllm_runtime.engine.output_mailbox import OutputMailbox
from minivllm_runtime.messages import (
    Accepted,
    EngineStats,
    Refused,
    StepOutput,
    TokenLogprobs,
    TokenOutput,
)
from minivllm_scheduler import FinishReason


def stats(num_steps):
    return EngineStats(1, 0, 0, 8, 1, 7, 0, 0, num_steps)


def step(*tokens, answers=(), num_steps=0, queue_times_s=()):
    return StepOutput(answers, tokens, stats(num_steps), queue_times_s)


def test_what_is_taken_in_time_is_passed_on_as_it_is():
    mailbox = OutputMailbox()
    for num_steps in range(3):
        output = step(TokenOutput("a", (1,), None, 0, None), num_steps=num_steps)
        assert mailbox.put(output)
        assert mailbox.take() is output


def test_only_the_first_output_wakes_the_taker_who_finds_all_of_them():
    score = TokenLogprobs(-1.0, 1, ())
    mailbox = OutputMailbox()
    first = TokenOutput("a", (1,), None, 4, None, (score,), (score, score))
    last = TokenOutput("a", (3, 4), FinishReason.STOP, 4, None, (score, score))
    assert mailbox.put(step(first, answers=(Accepted("b"),), queue_times_s=(0.5,)))
    assert not mailbox.put(step(TokenOutput("b", (9,), None, 0, None), answers=(Refused("c", "no", False),)))
    assert not mailbox.put(step(last, num_steps=3, queue_times_s=(0.25,)))
    assert mailbox.take() == StepOutput(
        (Accepted("b"), Refused("c", "no", False)),
        (
            TokenOutput("a", (1, 3, 4), FinishReason.STOP, 4, None, (score,) * 3, (score, score)),
            TokenOutput("b", (9,), None, 0, None),
        ),
        stats(3),
        (0.5, 0.25),
    )
    assert mailbox.put(step())


def test_an_error_keeps_what_came_before_it():
    mailbox = OutputMailbox()
    mailbox.put(step(TokenOutput("a", (1,), None, 0, None)))
    mailbox.put(step(TokenOutput("a", (), FinishReason.ERROR, 0, "no luck")))
    (output,) = mailbox.take().tokens
    assert (output.token_ids, output.finish_reason, output.error) == ((1,), FinishReason.ERROR, "no luck")


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.booleans()), max_size=20))
def test_nothing_is_lost_or_doubled_whenever_it_is_taken(steps):
    mailbox, taken, is_empty = OutputMailbox(), {"a": [], "b": []}, True
    for request_id, token_id, takes in [*steps, ("a", 0, True)]:
        assert mailbox.put(step(TokenOutput(request_id, (token_id,), None, 0, None))) is is_empty
        is_empty = takes
        for output in mailbox.take().tokens if takes else ():
            taken[output.request_id] += output.token_ids
    for name in "ab":
        assert taken[name] == [token_id for each, token_id, _ in [*steps, ("a", 0, True)] if each == name]
