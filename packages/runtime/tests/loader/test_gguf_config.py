from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from minivllm_runtime.errors import ModelLoadError
from minivllm_runtime.loader.gguf_config import read_gguf_config
from minivllm_runtime.loader.gguf_reader import GGUFFile
from minivllm_runtime.model_config import ModelConfig, RopeScaling

HEAD_DIM = 64
KEYS: dict[str, object] = {
    "context_length": 8192,
    "embedding_length": 128,
    "block_count": 2,
    "feed_forward_length": 256,
    "attention.head_count": 2,
    "attention.head_count_kv": 1,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 500000.0,
    "rope.dimension_count": HEAD_DIM,
}


def read(
    folder: Path, changes: dict[str, object] | None = None, arch: str = "llama", **tensors
) -> ModelConfig:
    """The config of a file with `KEYS` as changed (None removes a key) and an embedding of 128 rows."""
    path = folder / "model.gguf"
    writer = gguf.GGUFWriter(path, arch)
    for key, value in (KEYS | (changes or {})).items():
        add = {
            int: writer.add_uint32,
            float: writer.add_float32,
            str: writer.add_string,
            list: writer.add_array,
        }
        if value is not None:
            add[type(value)](f"{arch}.{key}", value)
    embedding = np.zeros((128, 128), dtype=np.float32)
    for name, tensor in ({"token_embd.weight": embedding} | tensors).items():
        if isinstance(tensor, tuple):
            writer.add_tensor(name, tensor[0], raw_dtype=tensor[1])
        elif tensor is not None:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read_gguf_config(GGUFFile(path))


def test_numbers_come_from_the_metadata(tmp_path):
    config = read(tmp_path)
    assert config.architecture == "llama"
    assert (config.num_layers, config.num_heads, config.num_kv_heads) == (2, 2, 1)
    assert (config.hidden_size, config.intermediate_size, config.head_dim) == (128, 256, HEAD_DIM)
    assert (config.vocab_size, config.max_position_embeddings) == (128, 8192)
    assert config.rope_theta == 500000.0
    assert config.rope_scaling is None
    assert config.tie_word_embeddings
    assert not config.attention_bias
    assert not config.qk_norm


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"attention.sliding_window": 4096}, "sliding_window = 4096"),
        ({"expert_count": 8}, "expert_count = 8"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping = 50.0"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping = 30.0"),
        ({"rope.scaling.type": "yarn"}, "rope.scaling.type 'yarn'"),
        (
            {"rope.dimension_count": 32, "attention.key_length": 64},
            "key length 64, value length 64, 32 rotated",
        ),
        ({"attention.key_length": 64, "attention.value_length": 128}, "value length 128"),
        ({"attention.head_count_kv": 3}, "2 query heads do not share 3 KV heads"),
        ({"attention.head_count": [2, 2]}, "head_count must be an integer"),
        ({"block_count": None}, "lacks block_count"),
        ({"embedding_length": 0}, "embedding_length must be an integer of at least 1, got 0"),
        ({"rope.freq_base": float("nan")}, "freq_base must be a positive number, got nan"),
    ],
)
def test_what_the_decoder_lacks_or_cannot_be_is_refused(tmp_path, changes, words):
    with pytest.raises(ModelLoadError, match=words) as caught:
        read(tmp_path, changes)
    assert "\n" not in str(caught.value)


def test_an_unknown_architecture_is_refused(tmp_path):
    with pytest.raises(ModelLoadError, match="unsupported architecture 'mamba'"):
        read(tmp_path, arch="mamba")


def test_a_file_without_an_embedding_is_refused(tmp_path):
    with pytest.raises(ModelLoadError, match="token_embd"):
        read(tmp_path, **{"token_embd.weight": None, "output.weight": np.zeros((2, 2), dtype=np.float32)})


def test_linear_scaling(tmp_path):
    config = read(tmp_path, {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0})
    assert config.rope_scaling == RopeScaling(kind="linear", factor=4.0)


def llama3_factors(factor: float, original: int = 8192) -> np.ndarray:
    """Unscaled over scaled frequencies, both as `transformers` computes them."""
    rope = {
        "rope_type": "llama3",
        "rope_theta": KEYS["rope.freq_base"],
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": original,
    }
    config = LlamaConfig(hidden_size=128, num_attention_heads=2, rope_parameters=rope)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = 1 / KEYS["rope.freq_base"] ** (torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    return (plain / scaled).numpy().astype(np.float32)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_scaling_is_recognised_by_its_factors(tmp_path, factor):
    config = read(tmp_path, **{"rope_freqs.weight": llama3_factors(factor)})
    scaling = config.rope_scaling
    assert scaling is not None
    assert scaling.kind == "llama3"
    assert scaling.factor == pytest.approx(factor)


@pytest.mark.parametrize(
    "factors", [llama3_factors(8.0, original=4096), np.full(32, 2, np.float32)], ids=["4096", "2"]
)
def test_other_frequency_factors_are_refused(tmp_path, factors):
    with pytest.raises(ModelLoadError, match="rope_freqs"):
        read(tmp_path, **{"rope_freqs.weight": factors})


@pytest.mark.parametrize(
    ("stored", "name"),
    [
        ("F32", "float32"),
        ("F16", "float16"),
        ("BF16", "bfloat16"),
        ("Q8_0", "bfloat16"),
        ("Q4_0", "bfloat16"),
    ],
)
def test_the_dtype_is_that_of_the_embedding_and_bfloat16_if_it_is_quantized(tmp_path, stored, name):
    kind = gguf.GGMLQuantizationType[stored]
    rows = gguf.quants.quantize(np.zeros((128, 128), dtype=np.float32), kind)
    assert read(tmp_path, **{"token_embd.weight": (rows, kind)}).checkpoint_dtype == name
