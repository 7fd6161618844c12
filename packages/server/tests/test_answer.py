from minivllm_runtime.outputs import ChoiceDelta
from minivllm_server.answer import AnswerChunks, new_identity, whole_answer
from minivllm_server.protocol.usage import UsageCounter

DELTAS = (ChoiceDelta(0, "a", (97,)), ChoiceDelta(1, "b", (98,), "length"))


def texts(delta):
    yield {"index": delta.index, "text": delta.text}


def test_no_two_identities_are_equal():
    assert len({new_identity("cmpl", "m").id for _ in range(10)}) == 10


def test_an_answer_is_its_identity_its_choices_and_its_usage():
    identity = new_identity("cmpl", "m")
    usage = UsageCounter(num_prompt_tokens=3, n=2).usage()
    assert whole_answer("kind", identity, [{"index": 0}], usage) == {
        "id": identity.id,
        "object": "kind",
        "created": identity.created,
        "model": "m",
        "choices": [{"index": 0}],
        "usage": usage.model_dump(),
    }


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
