"""What crosses the border between the processes arrives as it was sent."""

import math

from hypothesis import given
from hypothesis import strategies as st

from minivllm_runtime.engine.process.wire import decode_add, decode_output, encode
from minivllm_runtime.messages import (
    Accepted,
    AddRequests,
    EngineRequest,
    EngineStats,
    Refused,
    StepOutput,
    TokenLogprobs,
    TokenOutput,
)
from minivllm_scheduler import FinishReason

ids = st.integers(0, 2**31)
id_tuples = st.lists(ids, max_size=3).map(tuple)
finite = st.floats(allow_nan=False, allow_infinity=False)
scores = st.builds(
    TokenLogprobs,
    finite | st.just(-math.inf),
    st.integers(1, 2**31),
    st.lists(st.tuples(ids, finite | st.just(-math.inf)), max_size=3).map(tuple),
)
score_tuples = st.none() | st.lists(scores, max_size=3).map(tuple)
requests = st.builds(
    EngineRequest,
    prompt_token_ids=id_tuples,
    stop_token_ids=st.frozensets(ids, max_size=3),
    logit_bias=st.lists(st.tuples(ids, finite), max_size=3).map(tuple),
    temperature=finite,
    top_p=finite,
    min_p=finite,
    repetition_penalty=finite,
    presence_penalty=finite,
    frequency_penalty=finite,
    max_tokens=ids,
    min_tokens=ids,
    top_k=ids,
    seed=st.integers(0, 2**64 - 1),
    logprobs=st.none() | ids,
    prompt_logprobs=st.none() | ids,
    json_schema=st.none() | st.text(),
    choice=ids,
    priority=st.integers(-(2**31), 2**31 - 1),
)
outputs = st.builds(
    StepOutput,
    st.lists(
        st.builds(Accepted, st.text()) | st.builds(Refused, st.text(), st.text(), st.booleans(), st.text()),
        max_size=2,
    ).map(tuple),
    st.lists(
        st.builds(
            TokenOutput,
            st.text(),
            id_tuples,
            st.none() | st.sampled_from(FinishReason),
            ids,
            st.none() | st.text(),
            score_tuples,
            score_tuples,
        ),
        max_size=2,
    ).map(tuple),
    st.builds(EngineStats, *[ids] * len(EngineStats._fields)),
    st.lists(finite, max_size=2).map(tuple),
)


@given(st.builds(AddRequests, st.text(), st.lists(requests, max_size=2).map(tuple)))
def test_requests(command):
    assert decode_add(encode(command)) == command


@given(outputs)
def test_outputs(output):
    assert decode_output(encode(output)) == output
