import pytest

from minivllm_runtime.sampling.request_sampling import RequestSampling

from .rows import CPU, request


@pytest.mark.parametrize(
    ("changes", "is_adjusted"),
    [
        ({}, False),
        ({"temperature": 1.0, "top_k": 4, "top_p": 0.5, "min_p": 0.1}, False),
        ({"logprobs": 3}, False),
        ({"stop_token_ids": frozenset({1})}, False),
        ({"min_tokens": 2}, False),
        ({"min_tokens": 2, "stop_token_ids": frozenset({1})}, True),
        ({"min_tokens": 2, "stop_token_ids": frozenset({8})}, False),
        ({"logit_bias": ((99, 1.0),)}, False),
        ({"logit_bias": ((1, 1.0),)}, True),
        ({"repetition_penalty": 1.1}, True),
        ({"presence_penalty": -0.1}, True),
        ({"frequency_penalty": 0.1}, True),
        ({"json_schema": "{}"}, True),
    ],
    ids=str,
)
def test_a_request_is_adjusted_if_something_changes_its_logits(changes, is_adjusted):
    row = request(**{"temperature": 0.0, **changes})
    assert RequestSampling.prepare(row, 8, CPU).is_adjusted is is_adjusted
