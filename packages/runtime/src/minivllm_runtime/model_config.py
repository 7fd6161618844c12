"""The numbers that describe a decoder, read from whatever format the checkpoint has."""

from dataclasses import dataclass
from typing import Literal

Architecture = Literal["llama", "qwen2", "qwen3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """Llama-3 frequency scaling or plain linear scaling of rotary positions.

    Attributes:
        kind: "linear" divides every position by `factor`; "llama3" slows only the low frequencies.
        factor: How many times longer the context became.
        low_freq_factor, high_freq_factor: Bounds of the blend (llama3).
        original_max_position_embeddings: Context length before scaling (llama3).
    """

    kind: Literal["linear", "llama3"]
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Shape and features of a decoder-only transformer.

    Attributes:
        architecture: Family; decides names of weights and small differences.
        vocab_size: Rows of the embedding (may exceed the tokenizer's vocabulary).
        attention_bias: Bias on the q, k and v projections.
        attention_output_bias: Bias on the o projection.
        mlp_bias: Bias on gate, up and down projections.
        qk_norm: RMSNorm of each query and key head before the rotation.
        checkpoint_dtype: The dtype the weights were published in: "float32", "bfloat16" or "float16".
        eos_token_ids: Ids that end a sequence: generation config if present, else config.
    """

    architecture: Architecture
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    rope_scaling: RopeScaling | None = None
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    attention_output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    checkpoint_dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    eos_token_ids: tuple[int, ...] = ()
