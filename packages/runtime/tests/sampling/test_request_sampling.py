import pytest

from minivllm_runtime.sampling.request_sampling import RequestSampling

from .rows import CPU, request


@pytest.mark.parametrize(
    ("changes", "is_plain"),
    [
        ({}, True),
        ({"top_k": 4, "top_p": 0.5, "min_p": 0.1}, True),
        ({"stop_token_ids": frozenset({1})}, True),
        ({"min_tokens": 2}, True),
        ({"min_tokens": 2, "stop_token_ids": frozenset({1})}, False),
        ({"logit_bias": ((99, 1.0),)}, True),
        ({"logit_bias": ((1, 1.0),)}, False),
        ({"repetition_penalty": 1.1}, False),
        ({"presence_penalty": -0.1}, False),
        ({"frequency_penalty": 0.1}, False),
        ({"temperature": 1.0}, False),
    ],
    ids=str,
)
def test_a_request_is_plain_if_the_raw_logits_decide(changes, is_plain):
    row = request(**{"temperature": 0.0, **changes})
    assert RequestSampling.prepare(row, 8, CPU).is_plain is is_plain
