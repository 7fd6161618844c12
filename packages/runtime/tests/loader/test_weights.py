"""Case C35: heads tied, extra and missing; shards; nothing unexpected and nothing unset is silent."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from minivllm_runtime.errors import ModelLoadError
from minivllm_runtime.loader.safetensors_checkpoint import SafetensorsCheckpoint
from minivllm_runtime.loader.weights import dummy_weights, load_weights
from minivllm_runtime.models.decoder import Decoder

from ..reference.dense_attention import DenseAttention
from ..reference.tiny_transformers import VOCAB_SIZE, reference_model

IDS = torch.arange(0, VOCAB_SIZE, 7)


def load(folder):
    checkpoint = SafetensorsCheckpoint(folder)
    decoder = Decoder(checkpoint.config, 128)
    load_weights(decoder, checkpoint.tensors())
    return decoder


@torch.inference_mode()
def assert_same_logits(decoder, reference):
    hidden = decoder(IDS, torch.arange(len(IDS)), DenseAttention(decoder.config.num_heads))
    torch.testing.assert_close(
        decoder.compute_logits(hidden), reference(IDS[None]).logits[0], rtol=1e-4, atol=1e-4
    )


def change(folder, update):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    update(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.mark.parametrize("variant", ["llama tied", "llama 4/2 heads"])
def test_tied_without_a_head_and_untied_with_one(tmp_path, variant):
    reference = reference_model(variant)
    reference.save_pretrained(tmp_path)
    assert_same_logits(load(tmp_path), reference)


def test_tied_with_a_redundant_head(tmp_path):
    reference = reference_model("llama tied")
    reference.save_pretrained(tmp_path)
    change(
        tmp_path,
        lambda tensors: tensors.update({"lm_head.weight": tensors["model.embed_tokens.weight"].clone()}),
    )
    assert_same_logits(load(tmp_path), reference)


def test_three_shards_and_a_stray_file_of_zeros(tmp_path):
    reference = reference_model("llama 4/2 heads")
    reference.save_pretrained(tmp_path, max_shard_size="40KB")
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) >= 3
    save_file({name: torch.zeros(1) for name in index["weight_map"]}, tmp_path / "consolidated.safetensors")
    assert_same_logits(load(tmp_path), reference)


@pytest.mark.parametrize(
    "name",
    [
        "lm_head.weight",
        "model.norm.weight",
        "model.layers.1.self_attn.k_proj.weight",
        "model.layers.0.mlp.up_proj.weight",
    ],
)
def test_a_missing_tensor_is_named(tmp_path, name):
    reference_model("llama 4/2 heads").save_pretrained(tmp_path)
    change(tmp_path, lambda tensors: tensors.pop(name))
    with pytest.raises(ModelLoadError, match=f"missing.*{name}"):
        load(tmp_path)


@pytest.mark.parametrize(
    "name", ["model.layers.0.self_attn.q_proj.bias", "model.layers.9.mlp.up_proj.weight", "extra"]
)
def test_an_unexpected_tensor_is_named(tmp_path, name):
    reference_model("llama 4/2 heads").save_pretrained(tmp_path)
    change(tmp_path, lambda tensors: tensors.update({name: torch.zeros(4)}))
    with pytest.raises(ModelLoadError, match=f"unexpected.*{name}"):
        load(tmp_path)


def test_a_tensor_of_another_shape_is_named(tmp_path):
    reference_model("llama 4/2 heads").save_pretrained(tmp_path)
    change(tmp_path, lambda tensors: tensors.update({"model.norm.weight": torch.zeros(3)}))
    with pytest.raises(ModelLoadError, match=r"model.norm.weight.*\[3\].*\[32\]"):
        load(tmp_path)


def test_dummy_weights_fill_everything_with_finite_numbers_and_norms_near_one(tmp_path):
    reference_model("qwen3").save_pretrained(tmp_path)
    decoder = Decoder(SafetensorsCheckpoint(tmp_path).config, 128)
    for parameter in decoder.parameters():
        parameter.data.fill_(float("nan"))
    dummy_weights(decoder)
    assert all(parameter.isfinite().all() for parameter in decoder.parameters())
    assert (decoder.norm.weight - 1).abs().max() < 0.2
