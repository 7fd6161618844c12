import math

import pytest

from minivllm_runtime.outputs import TokenLogprob, TopLogprob
from minivllm_server.protocol.logprobs import (
    ChatLogprobs,
    CompletionLogprobs,
    chat_logprobs,
    completion_logprobs,
)

FIRST = TokenLogprob(5, "a", b"a", None, None, 0)
HALF_CHARACTER = TokenLogprob(
    7,
    "\ufffd",
    b"\xc3",
    -math.inf,
    3,
    1,
    (TopLogprob(8, "b", b"b", -0.5), TopLogprob(9, "\ufffd", b"\xc4", -2.0)),
)


def test_completions_have_four_lists():
    logprobs = completion_logprobs([FIRST], [HALF_CHARACTER], output_offset=10)
    assert logprobs == {
        "tokens": ["a", "\ufffd"],
        "token_logprobs": [None, -9999.0],
        "top_logprobs": [None, {"b": -0.5, "\ufffd": -9999.0}],
        "text_offset": [0, 11],
    }
    CompletionLogprobs.model_validate(logprobs)


def test_chat_has_an_entry_per_token_with_its_own_bytes():
    logprobs = chat_logprobs([HALF_CHARACTER])
    (entry,) = logprobs["content"]
    assert (entry["token"], entry["logprob"], entry["bytes"]) == ("\ufffd", -9999.0, [0xC3])
    assert entry["top_logprobs"] == [
        {"token": "b", "logprob": -0.5, "bytes": [98]},
        {"token": "\ufffd", "logprob": -2.0, "bytes": [0xC4]},
    ]
    ChatLogprobs.model_validate(logprobs)


@pytest.mark.parametrize("logprob", [-0.0, -1.5, -1e9])
def test_finite_ones_are_bounded_too(logprob):
    token = TokenLogprob(5, "a", b"a", logprob, 1, 0)
    assert chat_logprobs([token])["content"][0]["logprob"] == max(logprob, -9999.0)
