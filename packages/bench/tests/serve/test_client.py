import dataclasses
import threading

import pytest

from minivllm_bench.serve.client import Client
from minivllm_bench.serve.endpoint import Endpoint
from minivllm_bench.serve.load import Share
from minivllm_bench.workloads import BenchRequest


@pytest.fixture
def share(scripted):
    requests = tuple(BenchRequest((index, 7), 3) for index in range(6))
    return Share(
        endpoint=Endpoint.parse(scripted.url, "secret"),
        model="m",
        requests=requests,
        num_streams=2,
        arrivals_s=None,
        timeout_s=30,
    )


def errors(share):
    return [record.error for record in Client(share).run().records]


def test_each_request_is_sent_once_and_asks_for_what_was_drawn(scripted, share):
    scripted.script.meeting = threading.Barrier(2)
    report = Client(share).run()
    assert sorted(body["prompt"] for body, _ in scripted.script.requests) == [[i, 7] for i in range(6)]
    assert scripted.script.most_waiting == 2
    body, headers = scripted.script.requests[0]
    assert headers["Authorization"] == "Bearer secret"
    wanted = {"model": "m", "max_tokens": 3, "temperature": 0, "ignore_eos": True, "stream": True}
    assert wanted.items() <= body.items()
    assert body["stream_options"] == {"include_usage": True}
    assert report.cpu_s > 0
    assert report.wall_s > 0


@pytest.mark.parametrize("piece_bytes", [None, 1, 50])
def test_an_answer_is_timed_however_it_arrives(scripted, share, piece_bytes):
    scripted.script.piece_bytes = piece_bytes
    for record in Client(share).run().records:
        assert record.error is None
        assert record.output_tokens == 3
        assert len(record.chunk_times_s) == 3
        assert record.sent_s < record.chunk_times_s[0]
        assert list(record.chunk_times_s) == sorted(record.chunk_times_s)
        assert record.chunk_times_s[-1] <= record.ended_s


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ({"cut_after": 1}, "connection lost"),
        ({"error_after": 1}, "error in stream"),
        ({"tokens": 2}, "wrong number of tokens"),
        ({"has_usage": False}, "no usage"),
        ({"has_done": False}, "no [DONE]"),
        ({"refuse_every": 1}, "status 503"),
    ],
)
def test_a_failed_request_is_recorded_by_what_went_wrong(scripted, share, script, expected):
    vars(scripted.script).update(script)
    assert errors(share) == [expected] * 6


def test_one_failure_is_one_record_and_the_stream_goes_on(scripted, share):
    scripted.script.refuse_every = 3
    assert sorted(errors(share), key=str) == [None] * 4 + ["status 503"] * 2


def test_no_answer_is_a_time_out(scripted, share):
    scripted.script.is_silent = True
    assert errors(dataclasses.replace(share, requests=share.requests[:1], timeout_s=0.1)) == ["time-out"]


def test_nobody_listening_is_a_lost_connection(share):
    assert errors(dataclasses.replace(share, endpoint=Endpoint("127.0.0.1", 1))) == ["connection lost"] * 6


def test_in_an_open_loop_requests_leave_at_their_time_whatever_is_open(scripted, share):
    scripted.script.meeting = threading.Barrier(6)
    arrivals_s = tuple(0.01 * index for index in range(6))
    report = Client(dataclasses.replace(share, num_streams=6, arrivals_s=arrivals_s)).run()
    assert scripted.script.most_waiting == 6
    sent_s = sorted(record.sent_s for record in report.records)
    assert [each - sent_s[0] for each in sent_s] == pytest.approx(arrivals_s)
