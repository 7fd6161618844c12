import pytest

from minivllm_scheduler.simulation import DeviceSheet, InvalidCost, ModelShape, RooflineCost, StepLoad

TINY = {
    "num_layers": 2,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 2,
    "vocab_size": 10,
}


def test_weights_and_kv_bytes_are_those_of_the_matrices():
    shape = ModelShape(**TINY)
    q_o, k_v, mlp = 2 * 8 * (4 * 2), 2 * 8 * (2 * 2), 3 * 8 * 16
    assert shape.num_layer_weights == 2 * (q_o + k_v + mlp)
    assert shape.num_head_weights == 80
    assert shape.kv_bytes_per_token == 2 * 2 * (2 * 2) * 2


def test_a_known_model_has_its_known_size():
    llama_8b = ModelShape(
        num_layers=32,
        hidden_size=4096,
        intermediate_size=14336,
        num_heads=32,
        num_kv_heads=8,
        head_dim=128,
        vocab_size=128_256,
    )
    weights = llama_8b.num_layer_weights + 2 * llama_8b.num_head_weights  # the embedding is a second matrix
    assert weights == pytest.approx(8.03e9, rel=0.001)
    assert llama_8b.kv_bytes_per_token == 128 * 1024


def test_a_step_takes_the_longer_of_arithmetic_and_traffic():
    shape = ModelShape(**TINY)
    load = StepLoad(num_rows=2, num_tokens=5, num_samples=1, num_context_tokens=9, num_attention_pairs=20)
    flops = 2 * 5 * shape.num_layer_weights + 2 * 80 + 4 * 2 * 4 * 2 * 20
    moved = 2 * (shape.num_layer_weights + 80) + 32 * (9 + 5)
    slow_memory = RooflineCost(
        DeviceSheet(flops_per_s=1e30, bytes_per_s=1000, bandwidth_efficiency=0.5), shape
    )
    slow_compute = RooflineCost(
        DeviceSheet(flops_per_s=1000, bytes_per_s=1e30, compute_efficiency=0.25, step_overhead_s=3), shape
    )
    assert slow_memory.step_s(load) == pytest.approx(moved / 500)
    assert slow_compute.step_s(load) == pytest.approx(3 + flops / 250)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"flops_per_s": 0}, "flops_per_s is 0"),
        ({"bytes_per_s": -1}, "bytes_per_s is -1"),
        ({"compute_efficiency": 1.1}, "compute_efficiency is 1.1"),
        ({"bandwidth_efficiency": 0}, "bandwidth_efficiency is 0"),
        ({"step_overhead_s": -1}, "step_overhead_s is -1"),
    ],
)
def test_a_sheet_that_is_none_is_refused_with_field_and_value(changed, named):
    with pytest.raises(InvalidCost, match=named):
        DeviceSheet(**{"flops_per_s": 1.0, "bytes_per_s": 1.0} | changed)


@pytest.mark.parametrize("field", sorted(TINY))
def test_a_shape_that_is_none_is_refused_with_field_and_value(field):
    with pytest.raises(InvalidCost, match=f"{field} is 0"):
        ModelShape(**TINY | {field: 0})
