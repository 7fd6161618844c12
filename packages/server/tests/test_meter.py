import pytest

from minivllm_runtime.outputs import ChoiceDelta
from minivllm_server.meter import Meter
from minivllm_server.metrics import ServerMetrics

from .scripted_engine import scripted_engine


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def metrics():
    return ServerMetrics(scripted_engine("hello")[0], "m")


def value(metrics, name, **labels):
    return metrics.registry.get_sample_value(f"minivllm:{name}", {"model_name": "m"} | labels)


def test_a_generation_of_two_choices(metrics, clock):
    meter = Meter(metrics, clock, started_at=0.0, num_choices=2)
    clock.now = 1.0
    meter.add([ChoiceDelta(0, "a", (1,)), ChoiceDelta(1, "", ())])
    clock.now = 2.0
    meter.add([ChoiceDelta(0, "bc", (2, 3), "stop"), ChoiceDelta(1, "d", (4,))])
    clock.now = 5.0
    meter.add([ChoiceDelta(1, "", (), "length")])
    meter.end_early("abort")
    assert value(metrics, "generation_tokens_total") == 4
    assert value(metrics, "time_to_first_token_seconds_count") == 2
    assert value(metrics, "time_to_first_token_seconds_sum") == 3.0
    assert value(metrics, "inter_token_latency_seconds_count") == 2
    assert value(metrics, "inter_token_latency_seconds_sum") == 1.0
    assert value(metrics, "e2e_request_latency_seconds_sum") == 5.0
    for reason, num in {"stop": 1, "length": 1, "abort": 0, "error": 0}.items():
        assert value(metrics, "request_success_total", finished_reason=reason) == num


def test_what_ends_early_has_no_latency(metrics, clock):
    meter = Meter(metrics, clock, started_at=0.0, num_choices=3)
    meter.add([ChoiceDelta(0, "a", (1,), "stop")])
    assert meter.end_early("error") == 2
    assert meter.end_early("abort") == 0
    assert value(metrics, "request_success_total", finished_reason="error") == 2
    assert value(metrics, "request_success_total", finished_reason="abort") == 0
    assert value(metrics, "e2e_request_latency_seconds_count") == 0
