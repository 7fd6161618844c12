import json
import socket

import httpx
import openai
import pytest

PATH = "/v1/completions"
IM_END = 256  # ends a sequence in the scripted engine's tokenizer
ENDLESS = {"max_tokens": 90_000}
"""More tokens than are generated in the time that any test takes."""


@pytest.fixture
def client(serve_script):
    """Makes a client of a server that follows a script; both end with the test."""
    clients = []

    def connect(script="hello", **options):
        server = serve_script(script, **options)
        clients.append(httpx.Client(base_url=server.url, timeout=30, trust_env=False))
        clients[-1].server = server
        return clients[-1]

    yield connect
    for each in clients:
        each.close()


def complete(client, **body):
    return client.post(PATH, json={"prompt": "a", "temperature": 0, **body})


def stream(client, **body):
    """The chunks of a stream, and whether it ended with [DONE]."""
    with client.stream(
        "POST", PATH, json={"prompt": "a", "temperature": 0, "stream": True, **body}
    ) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    events = [line.removeprefix("data: ") for line in lines]
    is_done = events[-1] == "[DONE]"
    return [json.loads(event) for event in (events[:-1] if is_done else events)], is_done


def text_of(chunks, index=0):
    return "".join(
        choice["text"] for chunk in chunks for choice in chunk.get("choices", ()) if choice["index"] == index
    )


def test_an_answer_has_openais_shape(client):
    answer = complete(client("hello world"), max_tokens=5).json()
    assert answer.pop("id").startswith("cmpl-")
    assert answer.pop("created") > 0
    assert answer == {
        "object": "text_completion",
        "model": "scripted",
        "choices": [{"index": 0, "text": "hello", "logprobs": None, "finish_reason": "length"}],
        "usage": {
            "prompt_tokens": 1,
            "completion_tokens": 5,
            "total_tokens": 6,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


def test_a_stream_joins_to_the_same_text_under_one_id(client):
    chunks, is_done = stream(client("hello world"), max_tokens=11)
    assert is_done
    assert text_of(chunks) == "hello world"
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks}) == 1
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + [
        "length"
    ]
    assert all("usage" not in chunk for chunk in chunks)


def test_choices_are_prompt_major(client):
    answer = complete(client("xy"), prompt=["a", "b", "c"], n=2, max_tokens=2).json()
    assert [choice["index"] for choice in answer["choices"]] == list(range(6))
    assert {choice["text"] for choice in answer["choices"]} == {"xy"}
    assert answer["usage"]["prompt_tokens"] == 3
    assert answer["usage"]["completion_tokens"] == 12


@pytest.mark.parametrize(
    ("prompt", "num_prompt_tokens"), [("a", 1), (["a"], 1), ([97], 1), ([[97], [98]], 2), ("", 1), ([], 1)]
)
def test_prompts_of_every_kind(client, prompt, num_prompt_tokens):
    answer = complete(client("xy"), prompt=prompt, max_tokens=2).json()
    assert {choice["text"] for choice in answer["choices"]} == {"xy"}
    assert answer["usage"]["prompt_tokens"] == num_prompt_tokens


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}])
def test_usage_is_not_streamed_unless_asked_for(client, options):
    chunks, _ = stream(client(), stream_options=options, max_tokens=3)
    assert all("usage" not in chunk and chunk["choices"] for chunk in chunks)


def test_the_usage_chunk_equals_the_usage_of_the_answer(client):
    body = {"prompt": ["a", "b"], "n": 2, "max_tokens": 3}
    connection = client()
    chunks, is_done = stream(connection, **body, stream_options={"include_usage": True})
    assert is_done
    assert chunks[-1]["choices"] == []
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in chunks[:-1])
    assert chunks[-1]["usage"] == complete(connection, **body).json()["usage"]


@pytest.mark.parametrize(
    ("script", "fields", "text", "finish_reason", "num_tokens"),
    [
        ("abcdef", {"max_tokens": 3}, "abc", "length", 3),
        ([97, IM_END], {"max_tokens": 3}, "a", "stop", 2),
        ([97, 98, IM_END], {"max_tokens": 3}, "ab", "stop", 3),
        ("abcdef", {"max_tokens": 3, "stop": "bc"}, "a", "stop", 3),
        ([97, IM_END, 98], {"max_tokens": 3, "ignore_eos": True}, "ab", "length", 3),
    ],
)
def test_finish_reasons(client, script, fields, text, finish_reason, num_tokens):
    connection = client(script)
    answer = complete(connection, **fields).json()
    assert answer["choices"][0]["text"] == text
    assert answer["choices"][0]["finish_reason"] == finish_reason
    assert answer["usage"]["completion_tokens"] == num_tokens
    chunks, _ = stream(connection, **fields)
    assert text_of(chunks) == text
    assert [c["choices"][0]["finish_reason"] for c in chunks] == [None] * (len(chunks) - 1) + [finish_reason]


def test_a_line_separator_does_not_split_an_event(client):
    chunks, _ = stream(client("a\u2028b\u2029😀"), max_tokens=12)
    assert text_of(chunks).startswith("a\u2028b\u2029😀")


@pytest.mark.parametrize(("num_prompt_tokens", "num_generated"), [(5, 16), (60, 4), (63, 1)])
def test_the_default_is_sixteen_tokens_or_what_there_is_room_for(client, num_prompt_tokens, num_generated):
    answer = complete(client(), prompt="p" * num_prompt_tokens, max_tokens=None).json()
    assert answer["usage"]["completion_tokens"] == num_generated


@pytest.mark.parametrize(
    ("fields", "numbers"),
    [
        ({"prompt": "p" * 5, "max_tokens": 60}, ("5", "60", "64")),
        ({"prompt": "p" * 64}, ("64",)),
        ({"prompt": "p" * 65}, ("65", "64")),
        ({"prompt": "p" * 100_000}, ("100000", "64")),
        ({"prompt": [5, -1]}, ("-1",)),
        ({"prompt": [[5], [999_999]]}, ("999999", "257")),
        ({"stop_token_ids": [999_999], "min_tokens": 1}, ("999999", "257")),
        ({"n": 128, "prompt": ["a"] * 100}, ("128", "100", "1024")),
        ({"min_tokens": 9, "max_tokens": 8}, ("9", "8")),
    ],
)
def test_what_can_never_be_served_is_refused_with_the_numbers(client, fields, numbers):
    connection = client()
    answer = complete(connection, **fields)
    assert answer.status_code == 400
    assert all(number in answer.json()["error"]["message"] for number in numbers)
    assert complete(connection).status_code == 200


@pytest.mark.parametrize(
    "field", ["temperature", "seed", "n", "max_tokens", "min_tokens", "priority", "stop_token_ids"]
)
@pytest.mark.parametrize("digits", [30, 400, 4200, 10_000])
def test_numbers_of_any_size_are_refused_briefly(client, field, digits):
    connection = client()
    number = "1" + "0" * digits
    value = f"[{number}]" if field == "stop_token_ids" else number
    content = f'{{"prompt": "a", "{field}": {value}}}'
    answer = connection.post(PATH, content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert len(answer.text) < 1000
    assert complete(connection, top_k=10**9).status_code == 200


def test_the_name_of_the_model(client):
    connection = client()
    assert complete(connection, model="scripted").json()["model"] == "scripted"
    answer = complete(connection, model="other")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"


def test_the_official_client(serve_script):
    server = serve_script("hello world")
    http_client = httpx.Client(trust_env=False)
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, http_client=http_client
    ) as api:
        assert [model.id for model in api.models.list()] == ["scripted"]
        answer = api.completions.create(model="scripted", prompt="a", max_tokens=5)
        assert answer.choices[0].text == "hello"
        chunks = api.completions.create(
            model="scripted", prompt="a", max_tokens=5, stream=True, stream_options={"include_usage": True}
        )
        texts = [(chunk.choices[0].text if chunk.choices else chunk.usage.total_tokens) for chunk in chunks]
        assert "".join(texts[:-1]) == "hello"
        assert texts[-1] == 6
        with pytest.raises(openai.NotFoundError):
            api.completions.create(model="other", prompt="a")
        with pytest.raises(openai.BadRequestError, match="top_p"):
            api.completions.create(model="scripted", prompt="a", top_p=1.1)


def test_a_full_queue_is_503_and_goes_on_when_there_is_room(client, becomes_true):
    connection = client(context=100_000, max_num_seqs=1, max_num_waiting=1)
    server = connection.server
    with Leaving(server, **ENDLESS, stream=True) as running:
        assert running.read_some()
        with Leaving(server):
            assert becomes_true(lambda: server.engine.stats().num_waiting == 1)
            answer = complete(connection)
            assert answer.status_code == 503
            assert answer.headers["retry-after"] == "1"
            assert answer.json()["error"]["code"] == "queue_full"
    assert becomes_true(lambda: is_at_rest(server))
    assert complete(connection).status_code == 200


def test_a_failing_step_is_500_for_its_requests_and_the_next_one_is_served(client):
    connection = client()
    connection.server.model.faults = [RuntimeError("broken once")]
    answer = complete(connection)
    assert answer.status_code == 500
    assert "broken once" in answer.json()["error"]["message"]
    assert complete(connection).status_code == 200
    assert connection.get("/health").status_code == 200


def test_a_dead_engine_is_503_for_all(client, becomes_true):
    connection = client()
    connection.server.model.faults = [RuntimeError("broken")] * 5
    assert complete(connection).status_code in {500, 503}
    assert becomes_true(lambda: not connection.server.engine.is_alive)
    assert complete(connection).json()["error"]["code"] == "engine_dead"
    health = connection.get("/health")
    assert health.status_code == 503
    assert "broken" in health.json()["error"]["message"]


def test_a_stream_that_fails_ends_with_one_error_and_a_closed_connection(client):
    connection = client("hello", context=512)
    model = connection.server.model
    model.pace.hold()
    model.pace.allow(4)
    body = {"prompt": "a", "max_tokens": 500, "stream": True}
    with connection.stream("POST", PATH, json=body) as answer:
        lines = (line for line in answer.iter_lines() if line)
        first = next(lines)
        model.faults = [RuntimeError("broken in the middle")]
        model.pace.release()
        rest = list(lines)
    assert json.loads(first.removeprefix("data: "))["choices"]
    events = [json.loads(line.removeprefix("data: ")) for line in rest]
    assert [event for event in events if "error" in event] == [events[-1]]
    assert "broken in the middle" in events[-1]["error"]["message"]
    assert all(event["choices"][0]["finish_reason"] is None for event in events[:-1])
    assert answer.headers["connection"] == "close"


def test_equal_request_ids_of_clients_do_not_meet(client, becomes_true):
    connection = client("hello")
    server = connection.server
    server.model.pace.hold()
    with (
        Leaving(server, headers="X-Request-Id: same\r\n") as one,
        Leaving(server, headers="X-Request-Id: same\r\n") as two,
    ):
        assert becomes_true(lambda: server.model.pace.num_begun > 0)
        server.model.pace.release()
        assert one.status() == two.status() == 200


class Leaving:
    """A raw connection with one request, closed without reading the answer."""

    def __init__(self, server, headers="", **body) -> None:
        content = json.dumps({"prompt": "a", "max_tokens": 5, **body}).encode()
        self._request = (
            f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{headers}"
            f"Content-Length: {len(content)}\r\n\r\n"
        ).encode() + content
        self._address = ("127.0.0.1", server.port)

    def __enter__(self):
        self._socket = socket.create_connection(self._address, timeout=30)
        self._socket.sendall(self._request)
        return self

    def __exit__(self, *_exc) -> None:
        self._socket.close()

    def status(self) -> int:
        return int(self._socket.recv(4096).split()[1])

    def read_some(self) -> bytes:
        return self._socket.recv(4096)


def is_at_rest(server):
    stats = server.engine.stats()
    return (
        stats.num_running == stats.num_waiting == 0
        and stats.num_blocks_in_use == 0
        and stats.num_blocks_allocatable == stats.num_blocks
    )


@pytest.mark.parametrize(
    "fields", [{}, {"stream": True}, {"n": 4}, {"n": 4, "stream": True}, {"prompt": ["a", "b"]}]
)
def test_a_client_that_leaves_while_it_is_served_frees_its_request(client, fields, becomes_true):
    connection = client("hello", context=100_000)
    server = connection.server
    with Leaving(server, **ENDLESS, **fields) as leaving:
        if fields.get("stream"):
            assert leaving.read_some().startswith(b"HTTP/1.1 200")
        assert becomes_true(lambda: server.engine.stats().num_running > 0)
    assert becomes_true(lambda: is_at_rest(server))
    num_begun = server.model.pace.num_begun
    assert complete(connection, max_tokens=3).status_code == 200
    assert server.model.pace.num_begun == num_begun + 3
