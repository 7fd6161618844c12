"""A client that leaves frees its request within a second, in every state: C30."""

import pytest

from .byte_tokens import ids_of
from .harness import PATH, eventually
from .wire_client import RawConnection, raw_request

SERVER = {"context": 40_000, "max_num_seqs": 4, "max_num_batched_tokens": 16, "block_size": 16}
ENDLESS = {"max_tokens": 30_000, "ignore_eos": True}


def assert_no_step_is_taken(server):
    """The engine sleeps: other requests take the steps they need and no more."""
    before = server.model.pace.num_begun
    assert server.client.get("/health").status_code == 200
    assert server.model.pace.num_begun == before
    assert server.complete(max_tokens=3).status_code == 200
    assert server.model.pace.num_begun == before + 3


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("fields", "num"), [({}, 1), ({"n": 4}, 4), ({"prompt": ["a", "b", "c"]}, 3)])
def test_while_it_runs(server, stream, fields, num):
    with server.send(**ENDLESS, stream=stream, **fields) as client:
        assert server.runs(num)
        if stream:
            assert client.read_some().startswith(b"HTTP/1.1 200")
    assert server.comes_to_rest(within_s=1)
    assert_no_step_is_taken(server)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("fields", "num"), [({}, 1), ({"n": 3}, 3)])
def test_while_it_waits(server, stream, fields, num):
    with server.send(**ENDLESS, n=4):
        assert server.runs(4)
        with server.send(**ENDLESS, stream=stream, **fields):
            assert server.queues(num)
        assert eventually(lambda: server.engine.stats().num_waiting == 0, within_s=1)
        assert server.engine.stats().num_running == 4
    assert server.comes_to_rest(within_s=1)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("n", [1, 4])
def test_in_the_middle_of_a_prefill(server, stream, n):
    first = server.model.pace.num_begun
    with server.send(**ENDLESS, prompt=[97] * 9000, n=n, stream=stream):  # some 560 chunks
        assert eventually(lambda: server.model.pace.num_begun > first + 3, within_s=10)
    assert server.comes_to_rest(within_s=1)
    assert server.model.pace.num_begun < first + 560
    assert_no_step_is_taken(server)


def test_before_its_first_step(server):
    server.model.pace.hold()
    first = server.model.pace.num_begun
    with server.send(**ENDLESS, n=4):
        assert eventually(lambda: server.model.pace.num_begun > first, within_s=10)
    server.model.pace.release()
    assert server.comes_to_rest(within_s=1)


def test_with_half_its_request_sent(server):
    request = raw_request(PATH, b'{"prompt"', {"Content-Length": "5000"})
    for cut in (10, 60, len(request)):
        RawConnection(server.port, request[:cut]).close()
    assert server.works()


def test_others_are_not_affected(server):
    text = "the quick brown fox " * 40
    server.play(ids_of(*text))
    with server.stream(max_tokens=len(text)) as stayed:
        with server.send(**ENDLESS, stream=True, n=2), server.send(**ENDLESS):
            assert server.runs(4)
            assert next(iter(stayed))
        list(stayed)
    assert stayed.is_done
    assert stayed.text() == text
