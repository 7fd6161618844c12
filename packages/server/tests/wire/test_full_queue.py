"""A full queue is 503 with Retry-After, all or nothing, and the official client comes back."""

import contextlib

import httpx
import openai
import pytest

from .wire_client import expect_error

SERVER = {"context": 40_000, "max_num_seqs": 1, "max_num_waiting": 2, "block_size": 16}
ENDLESS = {"max_tokens": 30_000}


@pytest.fixture
def busy(server):
    """Makes one request run and some wait, until the stack that it gives is closed."""
    with contextlib.ExitStack() as stack:

        def occupy(num_waiting):
            stack.enter_context(server.send(**ENDLESS))
            assert server.runs(1)
            if num_waiting:
                stack.enter_context(server.send(**ENDLESS, n=num_waiting))
                assert server.queues(num_waiting)
            return stack

        yield occupy


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("num_waiting", "fields"), [(2, {}), (2, {"n": 2}), (1, {"n": 2}), (1, {"prompt": ["a", "b"]})]
)
def test_what_finds_no_room_is_503_and_nothing_of_it_is_queued(server, busy, num_waiting, fields, stream):
    stack = busy(num_waiting)
    answer = server.complete(stream=stream, **fields)
    expect_error(answer, 503)
    assert int(answer.headers["retry-after"]) >= 1
    assert server.engine.stats().num_waiting == num_waiting
    assert server.engine.stats().num_running == 1
    stack.close()
    assert server.comes_to_rest()
    assert server.works()


@pytest.mark.parametrize(("num_waiting", "fields"), [(1, {}), (0, {"n": 2}), (0, {"prompt": ["a", "b"]})])
def test_what_finds_room_waits(server, busy, num_waiting, fields):
    stack = busy(num_waiting)
    with server.send(**fields, max_tokens=1) as waiting:
        assert server.queues(2)
        stack.close()
        status, _ = waiting.read_answer()
    assert status == 200


def test_a_request_that_never_fits_is_400_also_when_the_queue_is_full(server, busy):
    busy(2)
    expect_error(server.complete(n=3), 400)
    expect_error(server.complete(max_tokens=50_000), 400)


def test_health_and_models_answer_while_the_queue_is_full(server, busy):
    busy(2)
    assert server.client.get("/health").status_code == 200
    assert server.client.get("/v1/models").status_code == 200


def test_the_official_client_comes_back_when_there_is_room(server, busy):
    stack = busy(2)
    statuses = []

    def on_response(response):
        statuses.append(response.status_code)
        stack.close()  # the room that the second attempt finds
        assert response.status_code == 200 or server.comes_to_rest()

    http_client = httpx.Client(trust_env=False, event_hooks={"response": [on_response]})
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=2, http_client=http_client
    ) as api:
        answer = api.completions.create(model="scripted", prompt="a", max_tokens=2)
    assert answer.choices[0].text == ".."
    assert statuses == [503, 200]
