"""Tiny random models of Hugging Face `transformers`, and engines of ours with the same weights."""

import tempfile
from pathlib import Path

import torch
from transformers import PreTrainedModel

from minivllm_runtime.config import EngineConfig
from minivllm_runtime.device.choose_ops import choose_ops
from minivllm_runtime.engine.builder import BuiltEngine, assemble_engine
from minivllm_runtime.loader.safetensors_checkpoint import SafetensorsCheckpoint
from minivllm_runtime.loader.weights import load_weights
from minivllm_runtime.model_config import ModelConfig
from minivllm_runtime.models.decoder import Decoder

from ..loader.tiny_models import tiny_model
from ..scripted.byte_level import byte_level_tokenizer

VOCAB_SIZE = 258  # that of the byte-level tokenizer, so that every id of the model may be sampled

VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    "llama 4/2 heads": ("llama", {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32}),
    "llama 9/3 heads": ("llama", {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 72}),
    "llama 6/2 heads": ("llama", {"num_attention_heads": 6, "num_key_value_heads": 2, "hidden_size": 48}),
    "llama head_dim != hidden/heads": (
        "llama",
        {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16},
    ),
    "llama tied": ("llama", {"tie_word_embeddings": True}),
    "llama biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama3 rope": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16,
            }
        },
    ),
    "linear rope": (
        "llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}},
    ),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
}


def reference_model(variant: str) -> PreTrainedModel:
    """The model of `transformers`, with weights small enough that attention looks at more than one token."""
    family, changes = VARIANTS[variant]
    model = tiny_model(family, **{"vocab_size": VOCAB_SIZE, "eos_token_id": None, **changes}).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.mul_(0.2).add_(1.0 if "norm" in name else 0.0)
    return model


def decoder_of(model: PreTrainedModel) -> tuple[Decoder, ModelConfig]:
    """Our decoder with the weights of `model`, by way of a saved checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        checkpoint = SafetensorsCheckpoint(Path(folder))
        decoder = Decoder(checkpoint.config, checkpoint.config.max_position_embeddings)
        load_weights(decoder, checkpoint.tensors())
    return decoder, checkpoint.config


def engine_of(model: PreTrainedModel, *, device: str = "cpu", **settings: object) -> BuiltEngine:
    """Our engine in float32 with the weights of `model`."""
    decoder, config = decoder_of(model)
    decoder.to(device).pack(choose_ops(torch.device(device), torch.float32, config))
    engine_config = EngineConfig(**{"num_blocks": 200, "block_size": 4, "max_num_seqs": 16, **settings})
    return assemble_engine(
        engine_config,
        decoder,
        byte_level_tokenizer(),
        config,
        dtype=torch.float32,
        device=torch.device(device),
    )


@torch.inference_mode()
def greedy_reference(
    model: PreTrainedModel, prompt: list[int], num_tokens: int, **settings: object
) -> tuple[int, ...]:
    """What `transformers.generate` makes of one prompt alone."""
    ids = torch.tensor([prompt], device=model.device)
    output = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=num_tokens,
        do_sample=False,
        pad_token_id=0,
        **settings,
    )
    return tuple(output[0, len(prompt) :].tolist())
