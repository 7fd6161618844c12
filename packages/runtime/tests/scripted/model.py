"""A model whose answer is given: logits with one large value at the next id of a list."""

from collections.abc import Sequence

import torch
from torch import Tensor

from minivllm_runtime.attention.step_attention import StepAttention
from minivllm_runtime.model_config import ModelConfig


class ScriptedModel:
    """Answers prompts of one length with `script`, then with its last id for ever."""

    def __init__(self, script: Sequence[int], *, prompt_length: int, vocab_size: int = 258) -> None:
        self.script = torch.tensor(script)
        self.prompt_length = prompt_length
        self.vocab_size = vocab_size

    def __call__(
        self, input_ids: Tensor, positions: Tensor, attention: StepAttention, wanted: Tensor | None
    ) -> Tensor:
        return (positions if wanted is None else positions[wanted])[:, None]

    def compute_logits(self, hidden: Tensor) -> Tensor:
        index = (hidden[:, 0] - self.prompt_length + 1).clamp(0, len(self.script) - 1)
        logits = torch.zeros(len(hidden), self.vocab_size)
        logits[torch.arange(len(hidden)), self.script[index]] = 100.0
        return logits


def scripted_config(vocab_size: int = 258, context: int = 128) -> ModelConfig:
    """The smallest config around a scripted model."""
    return ModelConfig(
        architecture="llama",
        vocab_size=vocab_size,
        hidden_size=4,
        intermediate_size=4,
        num_layers=1,
        num_heads=1,
        num_kv_heads=1,
        head_dim=4,
        rms_norm_eps=1e-5,
        rope_theta=1e4,
        max_position_embeddings=context,
    )
