"""Tiny random models of each family, saved as Hugging Face folders or as GGUF files."""

from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

SHAPE = {
    "vocab_size": 128,
    "hidden_size": 36,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 128,
}
_CLASSES = {
    "llama": (LlamaConfig, LlamaForCausalLM, gguf.MODEL_ARCH.LLAMA),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, gguf.MODEL_ARCH.QWEN2),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, gguf.MODEL_ARCH.QWEN3),
}


def tiny_model(family: str, **changes: object) -> PreTrainedModel:
    """A model with every parameter random, biases and norms included: Hugging Face sets those to 0 and 1."""
    config_class, model_class, _ = _CLASSES[family]
    torch.manual_seed(0)
    model = model_class(config_class(**{**SHAPE, "head_dim": 8, **changes}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    return model


def write_gguf(model: PreTrainedModel, path: Path, *, tokens: list[str] | None = None) -> None:
    """Writes `model` as llama.cpp's converter does, all in float32; `tokens` make a byte-level vocabulary."""
    config = model.config
    _, _, arch = _CLASSES[config.model_type]
    writer = gguf.GGUFWriter(path, config.model_type)
    _write_config(writer, config)
    if tokens:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(tokens)
        writer.add_token_types([1] * len(tokens))
        writer.add_token_merges([])
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = tensor.numpy()
        if config.model_type == "llama" and ".q_proj." in name:
            values = interleaved(values, config.num_attention_heads)
        if config.model_type == "llama" and ".k_proj." in name:
            values = interleaved(values, config.num_key_value_heads)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def interleaved(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """Row i of a head's first half goes to 2i, of its second half to 2i + 1: llama.cpp's rotary layout."""
    heads = np.split(rows, num_heads)
    return np.concatenate([np.stack(np.split(head, 2), axis=1).reshape(head.shape) for head in heads])


def _write_config(writer: gguf.GGUFWriter, config: PreTrainedConfig) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_eos_token_id(2)
    writer.add_bos_token_id(1)
