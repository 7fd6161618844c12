import asyncio

import pytest
from prometheus_client import generate_latest

from minivllm_server.metrics import ServerMetrics

from .scripted_engine import scripted_engine

LABELS = {"model_name": "m"}


@pytest.fixture
def metrics():
    engine, _ = scripted_engine("hello")
    return ServerMetrics(engine, "m")


def value(metrics, name, **labels):
    return metrics.registry.get_sample_value(f"minivllm:{name}", LABELS | labels)


def test_the_engine_is_at_rest(metrics):
    for gauge in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert value(metrics, gauge) == 0
    for counter in ("prefix_cache_queries", "prefix_cache_hits", "num_preemptions"):
        assert value(metrics, f"{counter}_total") == 0


def test_every_reason_to_end_is_there_from_the_start(metrics):
    for reason in ("stop", "length", "abort", "error"):
        assert value(metrics, "request_success_total", finished_reason=reason) == 0


def test_only_what_is_measured_is_shown(metrics):
    metrics.observe_request(0.5)
    kinds = ("bucket", "sum", "count", "total", "running", "waiting", "perc")
    names = {
        sample.name for family in asyncio.run(metrics.collected()).collect() for sample in family.samples
    }
    assert names
    assert {name for name in names if not name.endswith(kinds)} == set()


def test_tokens_that_come_together_share_the_time(metrics):
    metrics.observe_tokens(4, 0.2)
    assert value(metrics, "inter_token_latency_seconds_count") == 4
    assert value(metrics, "inter_token_latency_seconds_sum") == pytest.approx(0.2)


def test_two_servers_in_a_process_do_not_share(metrics):
    other = ServerMetrics(scripted_engine("hello")[0], "m")
    other.count_generated(5)
    assert value(metrics, "generation_tokens_total") == 0
    assert b"minivllm:generation_tokens_total" in generate_latest(other.registry)
