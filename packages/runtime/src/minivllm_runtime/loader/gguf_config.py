"""The metadata of a GGUF file as a ModelConfig.

Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Biases, query and key norms and a tied head
are not in the metadata; they show in which tensors the file has.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from minivllm_runtime.attention.rotary import inverse_frequencies
from minivllm_runtime.errors import ModelLoadError
from minivllm_runtime.loader.config_fields import ConfigFields
from minivllm_runtime.loader.gguf_dequantize import dequantize
from minivllm_runtime.loader.gguf_reader import GGUFFile
from minivllm_runtime.model_config import Architecture, ModelConfig, RopeScaling

ROPE_FREQUENCY_FACTORS = "rope_freqs.weight"
"""Divisors of the rotary frequencies [head_dim / 2]; llama.cpp writes Llama 3's scaling this way."""

_ARCHITECTURES: Mapping[str, Architecture] = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
_REFUSED = (
    "attention.sliding_window",
    "attn_logit_softcapping",
    "expert_count",
    "final_logit_softcapping",
    "rope.scale_linear",
)
_DEFAULT_ROPE_THETA = 10_000.0


def read_gguf_config(file: GGUFFile) -> ModelConfig:
    """The model that the file describes.

    Raises:
        ModelLoadError: the metadata lacks a number, or asks for a family or feature that is not implemented.
    """
    architecture, fields = _family(file)
    for key in _REFUSED:
        if fields.get(key):
            raise ModelLoadError(f"{fields.source}: {key} = {fields.get(key)!r} is not supported")
    num_heads = fields.positive_int("attention.head_count")
    hidden_size = fields.positive_int("embedding_length")
    head_dim = _head_dim(fields, hidden_size, num_heads)
    rope_theta = fields.number("rope.freq_base", _DEFAULT_ROPE_THETA)
    return ModelConfig(
        architecture=architecture,
        vocab_size=_vocab_size(file),
        hidden_size=hidden_size,
        intermediate_size=fields.positive_int("feed_forward_length"),
        num_layers=fields.positive_int("block_count"),
        num_heads=num_heads,
        num_kv_heads=_num_kv_heads(fields, num_heads),
        head_dim=head_dim,
        rms_norm_eps=fields.number("attention.layer_norm_rms_epsilon"),
        rope_theta=rope_theta,
        max_position_embeddings=fields.positive_int("context_length"),
        rope_scaling=_rope_scaling(file, fields, rope_theta, head_dim),
        tie_word_embeddings="output.weight" not in file.tensors,
        attention_bias="blk.0.attn_q.bias" in file.tensors,
        attention_output_bias="blk.0.attn_output.bias" in file.tensors,
        mlp_bias="blk.0.ffn_up.bias" in file.tensors,
        qk_norm="blk.0.attn_q_norm.weight" in file.tensors,
        checkpoint_dtype=_dtype(file),
        eos_token_ids=ConfigFields(str(file.path), file.metadata).int_list("tokenizer.ggml.eos_token_id"),
    )


def _family(file: GGUFFile) -> tuple[Architecture, ConfigFields]:
    """The architecture and its own keys, without their prefix."""
    name = file.metadata.get("general.architecture")
    if not isinstance(name, str) or name not in _ARCHITECTURES:
        raise ModelLoadError(
            f"{file.path}: unsupported architecture {name!r}; supported: {', '.join(_ARCHITECTURES)}"
        )
    prefix = f"{name}."
    values = {
        key.removeprefix(prefix): value for key, value in file.metadata.items() if key.startswith(prefix)
    }
    return _ARCHITECTURES[name], ConfigFields(f"{file.path}, {name}", values)


def _vocab_size(file: GGUFFile) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelLoadError(f"{file.path} lacks token_embd.weight")
    return embedding.shape[0]


def _num_kv_heads(fields: ConfigFields, num_heads: int) -> int:
    num_kv_heads = fields.positive_int("attention.head_count_kv", num_heads)
    if num_heads % num_kv_heads:
        raise ModelLoadError(
            f"{fields.source}: {num_heads} query heads do not share {num_kv_heads} KV heads evenly"
        )
    return num_kv_heads


def _head_dim(fields: ConfigFields, hidden_size: int, num_heads: int) -> int:
    rotary_dim = fields.positive_int("rope.dimension_count", hidden_size // num_heads)
    head_dim = fields.positive_int("attention.key_length", rotary_dim)
    value_dim = fields.positive_int("attention.value_length", head_dim)
    if fields.get("rope.dimension_count") not in (None, head_dim) or value_dim != head_dim or head_dim % 2:
        raise ModelLoadError(
            f"{fields.source}: key length {head_dim}, value length {value_dim}, {rotary_dim} rotated; "
            "supported: all the same and even"
        )
    return head_dim


def _rope_scaling(file: GGUFFile, fields: ConfigFields, theta: float, head_dim: int) -> RopeScaling | None:
    kind = fields.get("rope.scaling.type", "none")
    if kind not in ("none", "linear"):
        raise ModelLoadError(
            f"{fields.source}: unsupported rope.scaling.type {kind!r}; supported: none, linear"
        )
    location = file.tensors.get(ROPE_FREQUENCY_FACTORS)
    if location is not None:
        factors = dequantize(file.read(location), location.format, location.shape)
        return _llama3_scaling(file, factors, theta, head_dim)
    if kind == "linear":
        return RopeScaling(kind="linear", factor=fields.number("rope.scaling.factor"))
    return None


def _llama3_scaling(file: GGUFFile, factors: Tensor, theta: float, head_dim: int) -> RopeScaling:
    """The scaling whose factors these are, if it is one of the published Llama 3 models'.

    The file keeps the resulting factors, not what they were made from. All published models share the bounds
    that are RopeScaling's defaults and differ in the factor, the largest of the list; the rest must agree.
    """
    scaling = RopeScaling(kind="llama3", factor=float(factors.max()))
    unscaled = inverse_frequencies(head_dim, theta, None)
    expected = unscaled / inverse_frequencies(head_dim, theta, scaling)
    if factors.shape != expected.shape or not torch.allclose(factors, expected, rtol=1e-4):
        raise ModelLoadError(
            f"{file.path}: {ROPE_FREQUENCY_FACTORS} is not Llama 3's scaling, the only one supported"
        )
    return scaling


def _dtype(file: GGUFFile) -> Literal["float32", "bfloat16", "float16"]:
    """The dtype of the embedding; bfloat16 where it is quantized: its exponent range always suffices."""
    match file.tensors["token_embd.weight"].format.name:
        case "F32":
            return "float32"
        case "F16":
            return "float16"
    return "bfloat16"
