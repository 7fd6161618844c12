"""/metrics: the names that dashboards know, right at rest, and counters that only rise."""

import json
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from .byte_tokens import EOS, ids_of
from .harness import eventually

SERVER = {"context": 40_000, "max_num_seqs": 1, "block_size": 16, "served_model_name": "m"}
DASHBOARD = Path(__file__).parents[2] / "grafana" / "minivllm.json"
GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
COUNTERS = (
    "prefix_cache_queries",
    "prefix_cache_hits",
    "num_preemptions",
    "prompt_tokens",
    "generation_tokens",
)
HISTOGRAMS = (
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
)


def read(server) -> dict[tuple, float]:
    """Every sample by its name and its labels but the model's."""
    answer = server.client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    samples = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            assert sample.name.startswith("minivllm:"), sample.name
            labels = dict(sample.labels)
            assert labels.pop("model_name") == "m"
            samples[sample.name.removeprefix("minivllm:"), *labels.values()] = sample.value
    return samples


def rise(before, after, *key):
    return after[key] - before[key]


def test_all_names_are_there(server):
    samples = read(server)
    for name in GAUGES:
        assert (name,) in samples
    for name in COUNTERS:
        assert (f"{name}_total",) in samples
    for name in HISTOGRAMS:
        assert (f"{name}_count",) in samples
    for reason in ("stop", "length"):
        assert ("request_success_total", reason) in samples


@pytest.mark.parametrize("stream", [True, False])
def test_a_request_is_counted(server, stream):
    server.play(ids_of("hi", EOS), prompt_len=4)
    before = read(server)
    body = {"prompt": ["aaaa", "bbbb"], "n": 2, "max_tokens": 9}
    if stream:
        server.stream(**body).read_all()
    else:
        server.complete(**body)
    assert server.comes_to_rest()
    after = read(server)
    assert rise(before, after, "prompt_tokens_total") == 8
    assert rise(before, after, "generation_tokens_total") == 4 * 3
    assert rise(before, after, "request_success_total", "stop") == 4
    assert rise(before, after, "time_to_first_token_seconds_count") == 4
    # Tokens that were read together with the first one have no latency of their own.
    assert rise(before, after, "inter_token_latency_seconds_count") <= 4 * 2
    assert rise(before, after, "e2e_request_latency_seconds_count") == 1
    assert rise(before, after, "request_queue_time_seconds_count") == 4
    assert all(value >= before[key] for key, value in after.items() if key[0].endswith("_total"))
    assert all(after[gauge,] == 0 for gauge in GAUGES)


def test_gauges_follow_the_engine(server):
    server.play(ids_of("."))
    with server.send(max_tokens=30_000), server.send(max_tokens=30_000):
        assert server.queues(1)
        samples = read(server)
        assert samples["num_requests_running",] == 1
        assert samples["num_requests_waiting",] == 1
        assert 0 < samples["kv_cache_usage_perc",] < 1
    assert server.comes_to_rest()
    assert all(read(server)[gauge,] == 0 for gauge in GAUGES)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_is_counted_as_an_abort(server, stream):
    server.play(ids_of("."))
    before = read(server)
    with server.send(max_tokens=30_000, n=2, stream=stream):
        assert server.runs(1)
    assert server.comes_to_rest()
    assert eventually(lambda: rise(before, read(server), "request_success_total", "abort") == 2)


def test_a_failed_step_is_counted_as_an_error(server):
    before = read(server)
    server.model.faults.append(RuntimeError("broken once"))
    server.complete(n=1)
    assert rise(before, read(server), "request_success_total", "error") == 1


def test_a_refused_request_is_not_counted(server):
    before = read(server)
    server.complete(n=0)
    assert read(server) == before


def test_the_dashboard_asks_for_nothing_that_is_not_measured(server):
    names = {f"minivllm:{key[0]}" for key in read(server)}
    dashboard = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked = {word for each in expressions for word in names_in(each)}
    assert asked
    assert asked <= names


def names_in(expression):
    words = expression.replace("(", " ").replace("{", " ").replace("[", " ").split()
    return {word for word in words if word.startswith("minivllm:")}
