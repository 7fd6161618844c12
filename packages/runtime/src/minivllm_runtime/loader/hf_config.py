"""A Hugging Face `config.json` as a ModelConfig.

The file is read directly: `transformers` takes seconds to import. Both spellings of the rotary parameters are
known, `rope_theta` with `rope_scaling` and the `rope_parameters` of transformers 5. What the decoder does not
implement is refused here, because a feature ignored is a model that answers nonsense.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from minivllm_runtime.errors import ModelLoadError
from minivllm_runtime.loader.config_fields import ConfigFields
from minivllm_runtime.model_config import Architecture, ModelConfig, RopeScaling

_ARCHITECTURES: Mapping[str, Architecture] = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",  # the same decoder once the sliding window is off
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
_CLASS_OF_MODEL_TYPE = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_REFUSED = ("quantization_config", "attn_logit_softcapping", "final_logit_softcapping", "logit_softcapping")
_DEFAULT_ROPE_THETA = 10_000.0
_QWEN3_HEAD_DIM = 128


def read_hf_config(folder: Path) -> ModelConfig:
    """The model that `config.json` in `folder` describes; `generation_config.json` says what ends a sequence.

    Raises:
        ModelLoadError: a file is missing or damaged, or asks for a family or feature that is not implemented.
    """
    config = ConfigFields.from_file(folder / "config.json")
    class_name = _class_name(config)
    architecture = _ARCHITECTURES[class_name]
    _refuse_unsupported(config, class_name)
    hidden_size = config.positive_int("hidden_size")
    num_heads = config.positive_int("num_attention_heads")
    max_position_embeddings = config.positive_int("max_position_embeddings")
    rope_theta, rope_scaling = _rope(config, max_position_embeddings)
    attention_bias, attention_output_bias = _attention_biases(config, class_name)
    return ModelConfig(
        architecture=architecture,
        vocab_size=config.positive_int("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=config.positive_int("intermediate_size"),
        num_layers=config.positive_int("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=_num_kv_heads(config, num_heads),
        head_dim=_head_dim(config, architecture, hidden_size, num_heads),
        rms_norm_eps=config.number("rms_norm_eps", 1e-6),
        rope_theta=rope_theta,
        max_position_embeddings=max_position_embeddings,
        rope_scaling=rope_scaling,
        tie_word_embeddings=config.flag("tie_word_embeddings"),
        attention_bias=attention_bias,
        attention_output_bias=attention_output_bias,
        mlp_bias=architecture == "llama" and config.flag("mlp_bias"),
        qk_norm=architecture == "qwen3",
        checkpoint_dtype=_dtype(config),
        eos_token_ids=_eos_token_ids(folder, config),
    )


def _class_name(config: ConfigFields) -> str:
    names = config.get("architectures") or [_CLASS_OF_MODEL_TYPE.get(str(config.get("model_type")))]
    if not isinstance(names, list) or len(names) != 1 or names[0] not in _ARCHITECTURES:
        what = config.get("architectures") or config.get("model_type")
        raise ModelLoadError(
            f"{config.source}: unsupported architecture {what}; supported: {', '.join(_ARCHITECTURES)}"
        )
    return str(names[0])


def _refuse_unsupported(config: ConfigFields, class_name: str) -> None:
    for key in _REFUSED:
        if config.get(key) is not None:
            raise _unsupported(config, key)
    if config.get("hidden_act", "silu") != "silu":
        raise _unsupported(config, "hidden_act")
    if config.get("partial_rotary_factor") not in (None, 1, 1.0):
        raise _unsupported(config, "partial_rotary_factor")
    if any(kind != "full_attention" for kind in config.get("layer_types") or ()):
        raise _unsupported(config, "layer_types")
    if _uses_sliding_window(config, class_name):
        raise _unsupported(config, "sliding_window")


def _uses_sliding_window(config: ConfigFields, class_name: str) -> bool:
    if class_name.startswith("Qwen"):
        return config.flag("use_sliding_window") and config.get("sliding_window", 1) is not None
    # A Mistral config that does not say so has the window of its first release.
    absent = 4096 if class_name == "MistralForCausalLM" else None
    return config.get("sliding_window", absent) is not None


def _attention_biases(config: ConfigFields, class_name: str) -> tuple[bool, bool]:
    """Biases of the q, k and v projections and of the o projection."""
    if class_name == "Qwen2ForCausalLM":
        return True, False
    if class_name == "MistralForCausalLM":
        return False, False
    bias = config.flag("attention_bias")
    return bias, bias


def _num_kv_heads(config: ConfigFields, num_heads: int) -> int:
    num_kv_heads = config.positive_int("num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        raise ModelLoadError(
            f"{config.source}: {num_heads} query heads do not share {num_kv_heads} KV heads evenly"
        )
    return num_kv_heads


def _head_dim(config: ConfigFields, architecture: Architecture, hidden_size: int, num_heads: int) -> int:
    default = _QWEN3_HEAD_DIM if architecture == "qwen3" else hidden_size // num_heads
    head_dim = config.positive_int("head_dim", default)
    if head_dim % 2:
        raise ModelLoadError(
            f"{config.source}: head_dim is {head_dim}; rotary embeddings need an even number"
        )
    return head_dim


def _rope(config: ConfigFields, max_position_embeddings: int) -> tuple[float, RopeScaling | None]:
    """Base and scaling of the rotary embedding; a dict of parameters wins over `rope_theta` beside it."""
    rope = config.nested("rope_scaling") or config.nested("rope_parameters") or config.empty()
    if rope.get("partial_rotary_factor") not in (None, 1, 1.0):
        raise _unsupported(rope, "partial_rotary_factor")
    if any(isinstance(value, dict) for value in rope.values.values()):
        raise ModelLoadError(f"{rope.source}: parameters that differ from layer to layer are not supported")
    theta = rope.number("rope_theta", config.number("rope_theta", _DEFAULT_ROPE_THETA))
    return theta, _rope_scaling(rope, max_position_embeddings)


def _rope_scaling(rope: ConfigFields, max_position_embeddings: int) -> RopeScaling | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    match kind:
        case "default":
            return None
        case "linear":
            return RopeScaling(kind="linear", factor=rope.number("factor"))
        case "llama3":
            original = rope.positive_int("original_max_position_embeddings", max_position_embeddings)
            return RopeScaling(
                kind="llama3",
                factor=rope.number("factor"),
                low_freq_factor=rope.number("low_freq_factor"),
                high_freq_factor=rope.number("high_freq_factor"),
                original_max_position_embeddings=original,
            )
    raise ModelLoadError(f"{rope.source}: unsupported rope type {kind!r}; supported: default, linear, llama3")


def _dtype(config: ConfigFields) -> Literal["float32", "bfloat16", "float16"]:
    value: Any = config.get("dtype") or config.get("torch_dtype") or "float32"
    match str(value).removeprefix("torch."):
        case "float32":
            return "float32"
        case "bfloat16":
            return "bfloat16"
        case "float16":
            return "float16"
    raise ModelLoadError(
        f"{config.source}: unsupported dtype {value!r}; supported: float32, bfloat16, float16"
    )


def _eos_token_ids(folder: Path, config: ConfigFields) -> tuple[int, ...]:
    generation_config = folder / "generation_config.json"
    source = ConfigFields.from_file(generation_config) if generation_config.is_file() else config
    return source.int_list("eos_token_id")


def _unsupported(fields: ConfigFields, key: str) -> ModelLoadError:
    return ModelLoadError(f"{fields.source}: {key} = {fields.get(key)!r} is not supported")
