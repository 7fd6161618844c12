import pytest

from minivllm_bench.errors import EngineFailed
from minivllm_bench.serve.client_pool import ClientPool
from minivllm_bench.serve.comparison import LoadSettings, Server, compare, first_model
from minivllm_bench.serve.endpoint import Endpoint
from minivllm_bench.serve.load import RequestRate, Streams

SETTINGS = LoadSettings(
    num_requests=None, input_len=5, output_len=2, vocab_size=100, repeats=2, seed=0, timeout_s=10
)


@pytest.mark.parametrize(
    ("load", "warm_up", "timed"), [(Streams(1), 1, 8), (Streams(16), 16, 64), (RequestRate(3.0), 8, 100)]
)
def test_a_run_has_requests_enough_for_its_streams(load, warm_up, timed):
    assert [len(SETTINGS.requests(load, run)) for run in (0, 1)] == [warm_up, timed]


def test_prompts_are_fresh_in_each_run_and_the_same_in_each_benchmark():
    drawn = [SETTINGS.requests(Streams(4), run) for run in (0, 1, 2)]
    prompts = [request.prompt_token_ids for run in drawn for request in run]
    assert len(set(prompts)) == len(prompts)
    assert {len(prompt) for prompt in prompts} == {5}
    assert drawn == [SETTINGS.requests(Streams(4), run) for run in (0, 1, 2)]


def test_servers_take_turns_and_warm_ups_do_not_count(scripted):
    endpoint = Endpoint.parse(scripted.url)
    servers = [Server("a", endpoint, "model-a"), Server("b", endpoint, "model-b")]
    said = []
    with ClientPool(1) as clients:
        figures = compare(servers, [Streams(2), RequestRate(500.0)], SETTINGS, clients, said.append)
    assert [(row.server, row.load, row.num_requests) for row in figures] == [
        ("a", "2 streams", 16),
        ("b", "2 streams", 16),
        ("a", "500 requests/s", 200),
        ("b", "500 requests/s", 200),
    ]
    assert all(row.errors == {} for row in figures)
    assert [text.split(": ")[1] for text in said[:6]] == [
        "warm-up, a",
        "warm-up, b",
        "repeat 1 of 2, b",
        "repeat 1 of 2, a",
        "repeat 2 of 2, a",
        "repeat 2 of 2, b",
    ]
    by_model = {"model-a": [], "model-b": []}
    for body, _ in scripted.script.requests:
        by_model[body["model"]].append(tuple(body["prompt"]))
    assert sorted(by_model["model-a"]) == sorted(by_model["model-b"])


def test_the_first_model_of_a_server(scripted):
    assert first_model(Endpoint.parse(scripted.url)) == "scripted"


@pytest.mark.parametrize(("path", "said"), [("/nothing", "status 404"), ("/health/x?=", "status 404")])
def test_a_server_without_models_is_said(scripted, path, said):
    endpoint = Endpoint("127.0.0.1", scripted.server_address[1], base_path=path)
    with pytest.raises(EngineFailed, match=said):
        first_model(endpoint)


def test_no_server_is_said():
    with pytest.raises(EngineFailed, match="no answer from 127"):
        first_model(Endpoint("127.0.0.1", 1))
