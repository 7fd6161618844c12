"""Shapes of published models by name: the one table that `--model-config` and a roofline look into."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from minivllm_bench.errors import InvalidSetting
from minivllm_scheduler.simulation import ModelShape

CONFIGS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "smollm2-135m": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": 49152,
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "hidden_act": "silu",
            "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-05,
            "rope_theta": 100000.0,
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
        },
        "qwen3-0.6b": {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "vocab_size": 151936,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "hidden_act": "silu",
            "max_position_embeddings": 40960,
            "rms_norm_eps": 1e-06,
            "rope_theta": 1000000.0,
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
        },
        "tinyllama-1.1b": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": 32000,
            "hidden_size": 2048,
            "intermediate_size": 5632,
            "num_hidden_layers": 22,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "hidden_act": "silu",
            "max_position_embeddings": 2048,
            "rms_norm_eps": 1e-05,
            "rope_theta": 10000.0,
            "tie_word_embeddings": False,
            "torch_dtype": "float16",
        },
        "llama-3.2-1b": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": 128256,
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "hidden_act": "silu",
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-05,
            "rope_theta": 500000.0,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 32.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
        },
        "llama-3.1-8b": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": 128256,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "hidden_act": "silu",
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-05,
            "rope_theta": 500000.0,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
        },
    }
)
"""`config.json` of each model as its makers published it, as far as shapes go."""


def read_model_config(name: str) -> Mapping[str, Any]:
    """The config called `name`: one of `CONFIGS`, or else a file in the form of a `config.json`.

    Raises:
        InvalidSetting: there is neither; or the file holds no config.
    """
    if name in CONFIGS:
        return CONFIGS[name]
    try:
        config = json.loads(Path(name).read_text())
    except OSError as error:
        raise InvalidSetting(f"no config file {name}; by name there are {', '.join(CONFIGS)}") from error
    except ValueError as error:
        raise InvalidSetting(f"{name} is not a config: {error}") from error
    if not isinstance(config, dict) or not isinstance(config.get("vocab_size"), int):
        raise InvalidSetting(f"{name} is not a config: it has no vocab_size")
    return config


def model_shape(name: str) -> ModelShape:
    """The shape in the config called `name`, with two bytes a weight and a KV element.

    Raises:
        InvalidSetting: there is no such config, or it lacks a size.
    """
    config = read_model_config(name)
    try:
        heads = config["num_attention_heads"]
        return ModelShape(
            num_layers=config["num_hidden_layers"],
            hidden_size=config["hidden_size"],
            intermediate_size=config["intermediate_size"],
            num_heads=heads,
            num_kv_heads=config.get("num_key_value_heads", heads),
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            vocab_size=config["vocab_size"],
        )
    except KeyError as error:
        raise InvalidSetting(f"{name} is not a config: it has no {error.args[0]}") from error
