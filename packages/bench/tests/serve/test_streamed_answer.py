import itertools
import json

import pytest

from minivllm_bench.serve.streamed_answer import StreamedAnswer

CHUNK = {"choices": [{"index": 0, "text": "a"}], "usage": None}
USAGE = {"choices": [], "usage": {"completion_tokens": 2}}
ERROR = {"error": {"message": "broken"}}
DONE = "[DONE]"


def record_of(*contents, status=200):
    ticks = itertools.count(1.0)
    answer = StreamedAnswer(lambda: next(ticks))
    for content in contents:
        data = content if isinstance(content, str) else json.dumps(content)
        answer.receive(f"data: {data}\n\n".encode())
    return answer.record(sent_s=0.5, status=status, output_len=2)


def test_chunks_with_a_choice_are_timed_and_usage_is_counted():
    record = record_of(CHUNK, CHUNK, USAGE, DONE)
    assert record.error is None
    assert record.sent_s == 0.5
    assert record.chunk_times_s == (1.0, 2.0)
    assert record.ended_s == 5.0
    assert record.output_tokens == 2


def test_events_of_one_piece_arrive_together():
    answer = StreamedAnswer(iter([1.0, 2.0]).__next__)
    answer.receive(b"".join(f"data: {json.dumps(content)}\n\n".encode() for content in (CHUNK, CHUNK, USAGE)))
    record = answer.record(sent_s=0, status=200, output_len=2)
    assert record.chunk_times_s == (1.0, 1.0)


@pytest.mark.parametrize(
    ("contents", "status", "error"),
    [
        ((CHUNK, USAGE, DONE), 503, "status 503"),
        ((CHUNK, ERROR), 200, "error in stream"),
        ((CHUNK, USAGE), 200, "no [DONE]"),
        ((CHUNK, DONE), 200, "no usage"),
        ((CHUNK, {"choices": [], "usage": {"completion_tokens": 1}}, DONE), 200, "wrong number of tokens"),
        ((USAGE, DONE), 200, "no chunk"),
    ],
)
def test_what_is_no_whole_answer_is_an_error_without_tokens(contents, status, error):
    record = record_of(*contents, status=status)
    assert record.error == error
    assert record.output_tokens == 0
