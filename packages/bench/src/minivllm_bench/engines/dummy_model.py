"""Models without weights: the shape of a published model, and a tokenizer with a text for every id.

An engine fills in random weights. What it computes is noise, but it takes the time that the real model would.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_dummy_model(config: Mapping[str, Any], folder: Path) -> None:
    """Write config and tokenizer in Hugging Face's layout, without weights.

    Args:
        config: Of `model_configs.read_model_config`.
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
