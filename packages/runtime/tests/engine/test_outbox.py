from hypothesis import given
from hypothesis import strategies as st

from minivllm_runtime.engine.outbox import Outbox
from minivllm_runtime.outputs import ChoiceDelta, TokenLogprob


def test_what_a_slow_reader_finds_is_one_delta_per_choice_by_index():
    outbox = Outbox()
    outbox.merge(ChoiceDelta(1, "b", (7,), num_cached_tokens=4))
    outbox.merge(ChoiceDelta(0, "x", (1,)))
    outbox.merge(ChoiceDelta(1, "c", (8, 9), "stop", "!", 4))
    assert outbox.take() == (
        ChoiceDelta(0, "x", (1,)),
        ChoiceDelta(1, "bc", (7, 8, 9), "stop", "!", 4),
    )


def test_what_was_taken_is_forgotten():
    outbox = Outbox()
    assert outbox.is_empty
    assert outbox.take() == ()
    outbox.merge(ChoiceDelta(0, "a", (1,)))
    assert not outbox.is_empty
    outbox.take()
    assert outbox.is_empty
    outbox.merge(ChoiceDelta(0, "b", (2,)))
    assert outbox.take() == (ChoiceDelta(0, "b", (2,)),)


def test_log_probabilities_stay_beside_their_ids():
    first, second = (TokenLogprob(i, "x", b"x", -1.0, 1, 0) for i in (1, 2))
    outbox = Outbox()
    outbox.merge(ChoiceDelta(0, "", (1,), logprobs=(first,), prompt_logprobs=(second,)))
    outbox.merge(ChoiceDelta(0, "xx", (2,), logprobs=(second,)))
    outbox.merge(ChoiceDelta(0, "", (), "length", logprobs=()))
    assert outbox.take() == (
        ChoiceDelta(0, "xx", (1, 2), "length", logprobs=(first, second), prompt_logprobs=(second,)),
    )
    outbox.merge(ChoiceDelta(1, "", (), logprobs=()))
    assert outbox.take() == (ChoiceDelta(1, "", (), logprobs=()),)


@given(st.lists(st.tuples(st.integers(0, 2), st.text(max_size=3), st.booleans()), max_size=20))
def test_nothing_is_lost_or_doubled_however_it_is_read(steps):
    outbox = Outbox()
    read = dict.fromkeys(range(3), "")
    sent = dict.fromkeys(range(3), "")
    for index, text, reads in steps:
        outbox.merge(ChoiceDelta(index, text, (len(text),)))
        sent[index] += text
        for delta in outbox.take() if reads else ():
            read[delta.index] += delta.text
    for delta in outbox.take():
        read[delta.index] += delta.text
    assert read == sent
