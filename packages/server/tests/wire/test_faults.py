"""A failing request fails alone, a failing engine says so: C31."""

import math
import signal

import pytest

from minivllm_runtime.tokenizer import Tokenizer

from .byte_tokens import byte_tokenizer, ids_of
from .harness import PATH, eventually
from .tape_process import tape_process
from .wire_client import expect_error, unwrap_error

SERVER = {"context": 512}
POISON = ord("%")


class PoisonedTokenizer(Tokenizer):
    """Cannot decode one id."""

    def decode(self, token_ids, *, skip_special_tokens=True):
        self._check(token_ids)
        return super().decode(token_ids, skip_special_tokens=skip_special_tokens)

    def token_bytes(self, token_id):
        self._check([token_id])
        return super().token_bytes(token_id)

    def _check(self, token_ids):
        if POISON in token_ids:
            raise ValueError("this token has no text")


def poisoned_tokenizer():
    plain = byte_tokenizer()
    return PoisonedTokenizer(plain.backend, special_tokens=plain.special_tokens)


def read_failed_stream(stream):
    """The error at the end of a stream that began well."""
    *chunks, last = list(stream)
    error = unwrap_error(last)
    assert not stream.is_done
    assert all(choice["finish_reason"] is None for chunk in chunks for choice in chunk["choices"])
    return error


@pytest.mark.parametrize("fields", [{}, {"n": 3}, {"prompt": ["a", "b"]}])
@pytest.mark.parametrize("stream", [True, False])
def test_a_fault_in_the_first_step_is_a_500(server, fields, stream):
    server.model.faults.append(RuntimeError("broken once"))
    assert "broken once" in expect_error(server.complete(stream=stream, **fields), 500)["message"]
    assert server.comes_to_rest()
    assert server.client.get("/health").status_code == 200
    assert server.works()


@pytest.mark.parametrize("n", [1, 3])
def test_a_fault_in_the_middle_of_a_stream_is_its_last_event(server, n):
    server.model.pace.hold()
    server.model.pace.allow(4)
    with server.stream(n=n, max_tokens=400) as stream:
        next(iter(stream))
        server.model.faults.append(RuntimeError("broken in the middle"))
        server.model.pace.release()
        assert "broken in the middle" in read_failed_stream(stream)["message"]
    assert server.comes_to_rest()
    assert server.works()


def test_a_fault_spares_those_that_wait(launch):
    server = launch(context=40_000, block_size=16, max_num_seqs=1)
    with server.stream(max_tokens=30_000) as stream:
        waiting = server.in_background(max_tokens=3)
        assert server.queues(1)
        server.model.faults.append(RuntimeError("broken once"))
        read_failed_stream(stream)
    assert waiting.join_answer().json()["choices"][0]["text"] == "..."


def test_text_that_cannot_be_made_fails_its_request_alone(launch):
    server = launch(context=512, tokenizer=poisoned_tokenizer())
    server.play(ids_of("abcd", POISON, *"efgh" * 90), prompt_len=2)
    with server.stream(prompt="xxxxxxx", max_tokens=300) as other:
        expect_error(server.complete(prompt="xx", max_tokens=9), 500)
        list(other)
    assert other.is_done
    assert other.text() == ("efgh" * 90)[:300]
    assert server.comes_to_rest()
    assert server.works()


def test_text_that_cannot_be_made_ends_its_stream_alone(launch):
    server = launch(context=40_000, block_size=16, tokenizer=poisoned_tokenizer())
    efgh = ids_of("efgh" * 250)
    server.play(efgh)
    with (
        server.stream(prompt="x", max_tokens=900) as other,
        server.stream(prompt="x" * 1000, max_tokens=30_000) as failing,
    ):
        next(iter(failing))
        server.play([*efgh, POISON])  # whatever the position that it has come to
        read_failed_stream(failing)
        list(other)
    assert other.is_done
    assert other.text() == ("efgh" * 250)[:900]
    assert server.comes_to_rest()
    assert server.works()


def test_one_failing_choice_fails_its_request(launch):
    server = launch(tokenizer=poisoned_tokenizer())
    server.play(ids_of("a", POISON, "bcdefgh"))
    expect_error(server.complete(prompt=["x", "xxx"], max_tokens=4), 500)
    assert server.comes_to_rest()
    assert server.choice(prompt="xxx", max_tokens=4)["text"] == "bcde"


def fail_always(server):
    server.model.broken = RuntimeError("broken for good")


def kill_the_thread(server):
    server.model.broken = SystemExit("killed")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("breaks", [fail_always, kill_the_thread])
def test_a_dead_engine_fails_fast_and_says_so(launch, breaks):
    server = launch(context=512)
    server.model.pace.hold()
    server.model.pace.allow(2)
    with server.stream(max_tokens=400) as stream:
        next(iter(stream))
        waiting = server.in_background()
        breaks(server)
        server.model.pace.release()
        read_failed_stream(stream)
        unwrap_error(waiting.join_answer().json())
    assert waiting.answer.status_code in {500, 503}
    assert eventually(lambda: server.client.get("/health").status_code == 503)
    unwrap_error(server.client.get("/health").json())
    num_steps = server.model.pace.num_begun
    for body in ({}, {"stream": True}, {"n": 2}):
        answer = server.complete(**body)
        assert answer.status_code == 503
        unwrap_error(answer.json())
    assert server.client.get("/v1/models").status_code == 200
    assert server.model.pace.num_begun == num_steps


def asked_anew(server, ask, num_connections=8):
    """What `ask` makes of so many connections, whichever process takes them."""
    answers = []
    for _ in range(num_connections):
        with server.connect() as client:
            answers.append(ask(client))
    return answers


def test_a_fault_in_one_step_fails_its_requests_in_every_process_and_no_later_one():
    with tape_process(api_processes=2) as server, server.streams(6, max_tokens=30_000) as streams:
        server.fail_once()
        server.allow(math.inf)
        for stream in streams:
            assert "broken once" in read_failed_stream(stream)["message"]
        assert {answer.status_code for answer in asked_anew(server, complete)} == {200}
        assert {answer.status_code for answer in asked_anew(server, read_health)} == {200}


def test_a_fault_in_every_step_is_the_end_of_the_engine_for_every_process():
    with tape_process(api_processes=2) as server, server.streams(6, max_tokens=30_000) as streams:
        server.break_down()
        server.allow(math.inf)
        for stream in streams:
            assert "broken for good" in read_failed_stream(stream)["message"]
        assert eventually(lambda: {each.status_code for each in asked_anew(server, read_health)} == {503})
        for answer in asked_anew(server, complete):
            assert expect_error(answer, 503)["code"] == "engine_dead"
        server.signal(signal.SIGTERM)
        code, _ = server.wait()
        assert code == 0


def complete(client):
    return client.post(PATH, json={"prompt": "a", "max_tokens": 2})


def read_health(client):
    return client.get("/health")


def test_equal_request_ids_do_not_meet(server):
    server.play(ids_of("hello"))
    server.model.pace.hold()
    first = server.model.pace.num_begun
    headers = {"x-request-id": "same"}
    requests = [server.in_background(headers, max_tokens=5, request_id="same") for _ in range(3)]
    assert eventually(lambda: server.model.pace.num_begun > first)
    server.model.pace.release()
    answers = [request.join_answer() for request in requests]
    assert [answer.status_code for answer in answers] == [200] * 3
    assert {answer.headers["x-request-id"] for answer in answers} == {"same"}
    assert {answer.json()["choices"][0]["text"] for answer in answers} == {"hello"}
    assert len({answer.json()["id"] for answer in answers}) == 3
