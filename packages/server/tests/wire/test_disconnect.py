"""A client that leaves frees its request at once, in every state: C30."""

import json

import pytest

from .byte_tokens import ids_of
from .harness import PATH, eventually
from .wire_client import RawConnection, raw_request

SERVER = {"context": 40_000, "max_num_seqs": 4, "max_num_batched_tokens": 16, "block_size": 16}
ENDLESS = {"max_tokens": 30_000, "ignore_eos": True}


def leave(server, client, num):
    """Close a connection that has so many choices, and wait until the server knows; the model is held meanwhile."""
    server.model.pace.hold()
    before = server.num_aborted
    client.close()
    assert eventually(lambda: server.num_aborted == before + num)


def leave_and_expect_rest(server, client, num):
    """Nobody else is served: no step is taken but those that had begun when the server heard of it."""
    pace = server.model.pace
    leave(server, client, num)
    num_begun = pace.num_begun
    pace.release()
    assert server.comes_to_rest()
    assert pace.num_begun <= num_begun + 1  # one may have been allowed and not begun
    num_begun = pace.num_begun
    assert server.complete(max_tokens=3).status_code == 200
    assert pace.num_begun == num_begun + 3


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("fields", "num"), [({}, 1), ({"n": 4}, 4), ({"prompt": ["a", "b", "c"]}, 3)])
def test_while_it_runs(server, stream, fields, num):
    with server.send(**ENDLESS, stream=stream, **fields) as client:
        assert server.runs(num)
        if stream:
            assert client.read_some().startswith(b"HTTP/1.1 200")
        leave_and_expect_rest(server, client, num)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one after another"])
@pytest.mark.parametrize("num_more", [1, 3])
def test_with_more_requests_behind_it(server, stream, at_once, num_more, caplog):
    body = json.dumps({"prompt": "a", **ENDLESS, "stream": stream}).encode()
    first, more = raw_request(PATH, body), raw_request(PATH, b'{"prompt": "a"}') * num_more
    server.model.pace.hold()
    with RawConnection(server.port, first + more if at_once else first) as client:
        assert server.runs(1)
        if not at_once:
            client.send(more)
        assert eventually(lambda: server.num_pipelined == num_more)
        leave_and_expect_rest(server, client, 1)
    assert not caplog.records


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("fields", "num"), [({}, 1), ({"n": 3}, 3)])
def test_while_it_waits(server, stream, fields, num):
    with server.send(**ENDLESS, n=4) as first:
        assert server.runs(4)
        with server.send(**ENDLESS, stream=stream, **fields) as second:
            assert server.queues(num)
            leave(server, second, num)
        assert server.steps_until(lambda: server.engine.stats().num_waiting == 0)
        assert server.engine.stats().num_running == 4
        leave_and_expect_rest(server, first, 4)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("n", [1, 4])
def test_in_the_middle_of_a_prefill(server, stream, n):
    pace = server.model.pace
    pace.hold()
    first = pace.num_begun
    with server.send(**ENDLESS, prompt=[97] * 9000, n=n, stream=stream) as client:  # some 560 chunks
        assert server.runs(1)
        leave_and_expect_rest(server, client, n)
    assert pace.num_begun < first + 560


def test_before_its_first_step(server):
    server.model.pace.hold()
    with server.send(**ENDLESS, n=4) as client:
        assert eventually(lambda: server.engine.stats().num_waiting == 4)
        leave_and_expect_rest(server, client, 4)


def test_with_half_its_request_sent(server):
    request = raw_request(PATH, b'{"prompt"', {"Content-Length": "5000"})
    for cut in (10, 60, len(request)):
        RawConnection(server.port, request[:cut]).close()
    assert server.works()


def test_others_are_not_affected(server):
    text = "the quick brown fox " * 40
    server.play(ids_of(*text))
    server.model.pace.hold()
    server.model.pace.allow(1)
    with server.stream(max_tokens=len(text)) as stayed:
        with server.send(**ENDLESS, stream=True, n=2), server.send(**ENDLESS):
            assert server.runs(4)
            assert next(iter(stayed))
        server.model.pace.release()
        list(stayed)
    assert stayed.is_done
    assert stayed.text() == text
