"""Models without weights: the shape of a published model, and a tokenizer with a text for every id.

An engine fills in random weights. What it computes is noise, but it takes the time that the real model would.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from minivllm_bench.errors import InvalidSetting

CONFIGS: Final[Mapping[str, Mapping[str, Any]]] = {
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
}
"""`config.json` of TinyLlama/TinyLlama-1.1B-Chat-v1.0 and of Qwen/Qwen3-0.6B, as far as shapes go."""


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
        known = ", ".join(CONFIGS)
        raise InvalidSetting(f"no config file {name}; by name there are {known}") from error
    except ValueError as error:
        raise InvalidSetting(f"{name} is not a config: {error}") from error
    if not isinstance(config, dict) or not isinstance(config.get("vocab_size"), int):
        raise InvalidSetting(f"{name} is not a config: it has no vocab_size")
    return config


def write_dummy_model(config: Mapping[str, Any], folder: Path) -> None:
    """Write config and tokenizer in Hugging Face's layout, without weights.

    Args:
        config: As `read_model_config` returns it.
        folder: An existing one.
    """
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(_byte_level_tokenizer(int(config["vocab_size"]))))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))


def _byte_level_tokenizer(vocab_size: int) -> dict[str, Any]:
    """`tokenizer.json` of a byte-level vocabulary: every id is a short word with a space before it."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {f"Ġ{token_id:x}": token_id for token_id in range(vocab_size)},
            "merges": [],
        },
    }
