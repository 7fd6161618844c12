import pytest

from minivllm_runtime.errors import InvalidParameter
from minivllm_runtime.outputs import ChoiceDelta
from minivllm_server.generation import AnswerChunks, check_num_choices, new_identity
from minivllm_server.protocol.usage import UsageCounter

DELTAS = (ChoiceDelta(0, "a", (97,)), ChoiceDelta(1, "b", (98,), "length"))


def texts(delta):
    yield {"index": delta.index, "text": delta.text}


def test_what_the_queue_never_holds_is_refused_with_the_numbers():
    check_num_choices(2, 4, 8)
    with pytest.raises(InvalidParameter, match=r"at most 8, got 3 \* 3"):
        check_num_choices(3, 3, 8)


def test_no_two_identities_are_equal():
    assert len({new_identity("cmpl", "m").id for _ in range(10)}) == 10


def test_chunks_share_the_identity_and_hold_one_choice_each():
    identity = new_identity("cmpl", "m")
    chunks = AnswerChunks("kind", identity, texts, opening=[{"index": 0}])
    shared = {"id": identity.id, "object": "kind", "created": identity.created, "model": "m"}
    assert list(chunks.opening_chunks()) == [{**shared, "choices": [{"index": 0}]}]
    assert list(chunks.chunks(DELTAS)) == [
        {**shared, "choices": [{"index": 0, "text": "a"}]},
        {**shared, "choices": [{"index": 1, "text": "b"}]},
    ]
    assert list(chunks.closing_chunks()) == []


def test_usage_is_null_until_a_last_chunk_without_choices():
    counter = UsageCounter(num_prompt_tokens=3, n=2)
    chunks = AnswerChunks("kind", new_identity("cmpl", "m"), texts, usage=counter.usage)
    assert [chunk["usage"] for chunk in chunks.chunks(DELTAS)] == [None, None]
    counter.add(DELTAS)
    (last,) = chunks.closing_chunks()
    assert last["choices"] == []
    assert last["usage"] == counter.usage().model_dump()
