import json

import pytest

from minivllm_bench.errors import InvalidSetting
from minivllm_bench.model_configs import CONFIGS, model_shape, read_model_config


@pytest.mark.parametrize(
    ("name", "num_weights"),
    [
        ("smollm2-135m", 134.5e6),
        ("qwen3-0.6b", 596e6),
        ("tinyllama-1.1b", 1.1e9),
        ("llama-3.2-1b", 1.236e9),
        ("llama-3.1-8b", 8.03e9),
    ],
)
def test_a_shape_has_the_weights_of_its_model(name, num_weights):
    shape, num_embeddings = model_shape(name), 1 if CONFIGS[name]["tie_word_embeddings"] else 2
    found = shape.num_layer_weights + num_embeddings * shape.num_head_weights
    assert found == pytest.approx(num_weights, rel=0.001)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_model_is_one_that_the_engine_serves(name, tmp_path):
    hf_config = pytest.importorskip("minivllm_runtime.loader.hf_config")
    (tmp_path / "config.json").write_text(json.dumps(read_model_config(name)))
    read, shape = hf_config.read_hf_config(tmp_path), model_shape(name)
    for field in ("num_layers", "hidden_size", "intermediate_size", "num_heads", "num_kv_heads", "head_dim"):
        assert getattr(read, field) == getattr(shape, field)


def test_a_file_is_read_where_no_model_has_the_name(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIGS["qwen3-0.6b"]))
    assert read_model_config(str(file)) == CONFIGS["qwen3-0.6b"]
    assert model_shape(str(file)) == model_shape("qwen3-0.6b")


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_what_is_no_config_is_refused_with_its_name(text, tmp_path):
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(InvalidSetting, match=str(file)):
        read_model_config(str(file))


def test_a_config_without_a_size_is_refused_with_its_name(tmp_path):
    file = tmp_path / "config.json"
    file.write_text('{"vocab_size": 9, "num_attention_heads": 2, "num_hidden_layers": 1}')
    with pytest.raises(InvalidSetting, match=rf"{file} .* no hidden_size"):
        model_shape(str(file))


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(InvalidSetting, match=r"gpt-5.*tinyllama-1.1b"):
        read_model_config("gpt-5")
