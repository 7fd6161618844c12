import pytest

from minivllm_bench.simulate.presets import DEVICES, MODELS


@pytest.mark.parametrize(
    ("name", "num_weights", "num_embeddings"),
    [("smollm2-135m", 134.5e6, 1), ("llama-3.2-1b", 1.236e9, 1), ("llama-3.1-8b", 8.03e9, 2)],
)
def test_a_shape_has_the_weights_of_its_model(name, num_weights, num_embeddings):
    shape = MODELS[name]
    found = shape.num_layer_weights + num_embeddings * shape.num_head_weights
    assert found == pytest.approx(num_weights, rel=0.001)


def test_devices_become_balanced_at_some_hundred_flops_per_byte():
    for sheet in DEVICES.values():
        assert 100 < sheet.flops_per_s / sheet.bytes_per_s < 500
