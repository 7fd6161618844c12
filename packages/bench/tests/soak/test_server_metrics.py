import math

from minivllm_bench.soak.server_metrics import fallen, not_at_rest, parse_metrics

PAGE = """# HELP minivllm:num_requests_running Requests.
# TYPE minivllm:num_requests_running gauge
minivllm:num_requests_running{model_name="a b} 7"} 0.0
minivllm:num_requests_waiting 2.0
minivllm:kv_cache_usage_perc{model_name="m"} 0.25
minivllm:request_success_total{finished_reason="stop"} 3.0
minivllm:request_success_total{finished_reason="length"} 4.0
minivllm:e2e_bucket{le="+Inf"} 9.0
minivllm:e2e_count 9.0
python_info 1e3
"""


def test_values_are_summed_over_labels():
    assert parse_metrics(PAGE) == {
        "minivllm:num_requests_running": 0.0,
        "minivllm:num_requests_waiting": 2.0,
        "minivllm:kv_cache_usage_perc": 0.25,
        "minivllm:request_success_total": 7.0,
        "minivllm:e2e_count": 9.0,
        "python_info": 1000.0,
    }


def test_gauges_that_are_not_zero_or_missing_are_named():
    assert not_at_rest(parse_metrics(PAGE)) == {"num_requests_waiting": 2.0, "kv_cache_usage_perc": 0.25}
    assert math.isnan(not_at_rest({})["num_requests_running"])
    rest = {f"minivllm:{name}": 0.0 for name in not_at_rest({})}
    assert not_at_rest(rest) == {}


def test_counters_that_fall_or_vanish_are_named_and_gauges_may_fall():
    before = {"a_total": 2.0, "b_count": 3.0, "c_total": 1.0, "gauge": 5.0}
    assert fallen(before, {"a_total": 2.0, "b_count": 2.0, "gauge": 1.0}) == ["b_count", "c_total"]
    assert fallen({}, before) == []
