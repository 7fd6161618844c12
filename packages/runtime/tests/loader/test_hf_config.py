import json
from pathlib import Path

import pytest
from transformers import (
    AutoConfig,
    GenerationConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from minivllm_runtime.errors import ModelLoadError
from minivllm_runtime.loader.hf_config import read_hf_config
from minivllm_runtime.model_config import RopeScaling

from .tiny_models import SHAPE, tiny_model

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def save(folder: Path, config: PreTrainedConfig, name: str, **changes: object) -> Path:
    """Writes `config` for the architecture `name`; then keys are changed, or removed where the value is `...`."""
    config.architectures = [name]
    config.save_pretrained(folder)
    path = folder / "config.json"
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not ...}))
    return folder


def save_llama(folder: Path, **changes: object) -> Path:
    return save(folder, LlamaConfig(**SHAPE), "LlamaForCausalLM", **changes)


FAMILIES = {
    "llama": (LlamaConfig(**SHAPE), "LlamaForCausalLM"),
    "llama head_dim": (LlamaConfig(**SHAPE, head_dim=16), "LlamaForCausalLM"),
    "llama biases": (LlamaConfig(**SHAPE, attention_bias=True, mlp_bias=True), "LlamaForCausalLM"),
    "mistral": (MistralConfig(**SHAPE, sliding_window=None), "MistralForCausalLM"),
    "qwen2": (Qwen2Config(**SHAPE, rope_parameters={"rope_theta": 1e6}), "Qwen2ForCausalLM"),
    "qwen3": (Qwen3Config(**SHAPE, tie_word_embeddings=True), "Qwen3ForCausalLM"),
    "qwen3 biases": (Qwen3Config(**SHAPE, head_dim=32, attention_bias=True), "Qwen3ForCausalLM"),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_numbers_are_those_that_transformers_reads(tmp_path, family):
    save(tmp_path, *FAMILIES[family])
    expected = AutoConfig.from_pretrained(tmp_path)
    config = read_hf_config(tmp_path)
    for ours, theirs in {
        "vocab_size": "vocab_size",
        "hidden_size": "hidden_size",
        "intermediate_size": "intermediate_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "num_kv_heads": "num_key_value_heads",
        "rms_norm_eps": "rms_norm_eps",
        "max_position_embeddings": "max_position_embeddings",
        "tie_word_embeddings": "tie_word_embeddings",
    }.items():
        assert getattr(config, ours) == getattr(expected, theirs), ours
    head_dim = getattr(expected, "head_dim", None)
    assert config.head_dim == (head_dim or expected.hidden_size // expected.num_attention_heads)
    assert config.rope_theta == expected.rope_parameters["rope_theta"]
    assert config.rope_scaling is None


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("llama", {}),
        ("llama", {"attention_bias": True, "mlp_bias": True}),
        ("qwen2", {}),
        ("qwen3", {}),
        ("qwen3", {"attention_bias": True}),
    ],
)
def test_biases_and_norms_are_those_of_the_model_that_the_config_builds(tmp_path, family, changes):
    model = tiny_model(family, **changes)
    model.save_pretrained(tmp_path)
    config = read_hf_config(tmp_path)
    layer = model.model.layers[0]
    assert config.attention_bias == (layer.self_attn.q_proj.bias is not None)
    assert config.attention_output_bias == (layer.self_attn.o_proj.bias is not None)
    assert config.mlp_bias == (layer.mlp.up_proj.bias is not None)
    assert config.qk_norm == (family == "qwen3")
    assert config.checkpoint_dtype == "float32"


class TestRope:
    def test_base_of_the_older_layout(self, tmp_path):
        save_llama(tmp_path, rope_parameters=..., rope_theta=500000.0, rope_scaling=None)
        assert read_hf_config(tmp_path).rope_theta == 500000.0

    def test_base_that_nobody_states(self, tmp_path):
        save_llama(tmp_path, rope_parameters=...)
        assert read_hf_config(tmp_path).rope_theta == 10000.0

    @pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
    def test_linear(self, tmp_path, key):
        kind = "type" if key == "rope_scaling" else "rope_type"
        save_llama(
            tmp_path, **{"rope_parameters": ..., "rope_theta": 5.0, key: {kind: "linear", "factor": 4}}
        )
        config = read_hf_config(tmp_path)
        assert config.rope_scaling == RopeScaling(kind="linear", factor=4.0)
        assert config.rope_theta == 5.0

    @pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
    def test_llama3(self, tmp_path, key):
        save_llama(tmp_path, **{"rope_parameters": ..., "rope_theta": 500000.0, key: LLAMA3})
        expected = RopeScaling(kind="llama3", factor=32.0, original_max_position_embeddings=8192)
        assert read_hf_config(tmp_path).rope_scaling == expected

    @pytest.mark.parametrize("rope", [LLAMA3 | {"factor": None}, LLAMA3 | {"low_freq_factor": "1"}])
    def test_damaged_parameters_are_refused(self, tmp_path, rope):
        save_llama(tmp_path, rope_parameters=rope)
        with pytest.raises(ModelLoadError, match=r"rope_parameters.*factor"):
            read_hf_config(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sliding_window": 16}, "sliding_window = 16"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping = 50.0"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping = 30.0"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
        (
            {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}},
            "partial_rotary_factor = 0.25",
        ),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "rope type 'yarn'"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}, "differ from layer to layer"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope type 'dynamic'"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
        ({"architectures": ["GPT2LMHeadModel"]}, "unsupported architecture.*GPT2LMHeadModel"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
        ({"architectures": ["LlamaForCausalLM", "Qwen2ForCausalLM"]}, "unsupported architecture"),
        ({"architectures": ..., "model_type": "gemma2"}, "unsupported architecture gemma2"),
        ({"architectures": ..., "model_type": ...}, "unsupported architecture None"),
        ({"dtype": "float8_e4m3fn"}, "float8_e4m3fn"),
        ({"num_key_value_heads": 2}, "9 query heads do not share 2 KV heads"),
        ({"head_dim": 7}, "head_dim is 7"),
        ({"hidden_size": ...}, "lacks hidden_size"),
        ({"num_hidden_layers": "two"}, "num_hidden_layers must be"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings must be"),
        ({"eos_token_id": "</s>"}, "eos_token_id must be"),
    ],
)
def test_what_the_decoder_lacks_or_cannot_be_is_refused_in_one_line(tmp_path, changes, words):
    save_llama(tmp_path, **changes)
    with pytest.raises(ModelLoadError, match=words) as caught:
        read_hf_config(tmp_path)
    assert "\n" not in str(caught.value)
    assert "config.json" in str(caught.value)


@pytest.mark.parametrize(
    ("config", "name", "changes"),
    [
        (MistralConfig(**SHAPE), "MistralForCausalLM", {}),
        (MistralConfig(**SHAPE), "MistralForCausalLM", {"sliding_window": ...}),
        (Qwen2Config(**SHAPE, use_sliding_window=True, max_window_layers=0), "Qwen2ForCausalLM", {}),
        (Qwen3Config(**SHAPE), "Qwen3ForCausalLM", {"use_sliding_window": True, "sliding_window": 64}),
    ],
)
def test_a_window_in_use_is_refused_in_every_family(tmp_path, config, name, changes):
    save(tmp_path, config, name, **changes)
    with pytest.raises(ModelLoadError, match=r"sliding_window|layer_types"):
        read_hf_config(tmp_path)


def test_a_window_that_is_switched_off_is_none(tmp_path):
    save(tmp_path, Qwen2Config(**SHAPE), "Qwen2ForCausalLM", use_sliding_window=False, sliding_window=64)
    assert read_hf_config(tmp_path).architecture == "qwen2"


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
@pytest.mark.parametrize("value", ["float32", "bfloat16", "float16"])
def test_both_names_of_the_dtype(tmp_path, key, value):
    save_llama(tmp_path, **{"dtype": ..., key: value})
    assert read_hf_config(tmp_path).checkpoint_dtype == value


class TestEndOfSequence:
    def test_ids_of_the_config(self, tmp_path):
        save_llama(tmp_path, eos_token_id=[7, 9])
        assert read_hf_config(tmp_path).eos_token_ids == (7, 9)

    def test_a_generation_config_replaces_them(self, tmp_path):
        save_llama(tmp_path, eos_token_id=2)
        GenerationConfig(eos_token_id=[5, 6]).save_pretrained(tmp_path)
        assert read_hf_config(tmp_path).eos_token_ids == (5, 6)

    def test_there_may_be_none(self, tmp_path):
        save_llama(tmp_path, eos_token_id=None)
        assert read_hf_config(tmp_path).eos_token_ids == ()


def test_a_config_without_architectures_is_known_by_its_model_type(tmp_path):
    save_llama(tmp_path, architectures=...)
    assert read_hf_config(tmp_path).architecture == "llama"


def test_a_folder_without_config_is_refused(tmp_path):
    with pytest.raises(ModelLoadError, match=r"no such file: .*config\.json"):
        read_hf_config(tmp_path)
