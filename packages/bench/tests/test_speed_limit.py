import pytest

from minivllm_bench.model_configs import model_shape
from minivllm_bench.speed_limit import least_seconds
from minivllm_bench.workloads import find_workload
from minivllm_scheduler.simulation import DeviceSheet, RooflineCost

SHAPE = model_shape("tinyllama-1.1b")


def test_one_request_that_decodes_reads_all_weights_once_a_token():
    cost = RooflineCost(DeviceSheet(flops_per_s=1e18, bytes_per_s=4.29e12), SHAPE)
    requests = find_workload("decode_b1").draw(32000, seed=0, run=1)
    weights_s = 2 * (SHAPE.num_layer_weights + SHAPE.num_head_weights) / 4.29e12
    assert least_seconds(requests, cost) == pytest.approx(128 * weights_s, rel=0.01)


def test_prompts_are_bound_by_their_arithmetic():
    cost = RooflineCost(DeviceSheet(flops_per_s=790e12, bytes_per_s=1e18), SHAPE)
    requests = find_workload("prefill_64x1024").draw(32000, seed=0, run=1)
    products_s = 2 * SHAPE.num_layer_weights * 64 * 1024 / 790e12
    assert products_s < least_seconds(requests, cost) < 1.1 * products_s
