"""The decoder-only transformer of the Llama family, Qwen2 and Qwen3 included.

The families differ in what ModelConfig says (biases, q/k norms, tied head), not in structure. Names of modules follow
Hugging Face checkpoints, with q/k/v and gate/up fused.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from minivllm_runtime.attention.rotary import RotaryEmbedding, RotaryTables
from minivllm_runtime.attention.step_attention import StepAttention
from minivllm_runtime.device.interface import DeviceOps
from minivllm_runtime.layers.attention import SelfAttention
from minivllm_runtime.layers.linear import Linear
from minivllm_runtime.layers.mlp import GatedMLP
from minivllm_runtime.layers.norm import RMSNorm
from minivllm_runtime.model_config import ModelConfig


class DecoderLayer(nn.Module):
    """Attention and feed-forward, each behind its norm and added to the residual stream.

    A block's output is added by the norm that follows it, so that both are one pass over the residual.
    """

    def __init__(self, config: ModelConfig, layer_index: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = SelfAttention(config, layer_index)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = GatedMLP(config)

    def forward(
        self,
        update: Tensor | None,
        residual: Tensor,
        rotary: RotaryTables,
        attention: StepAttention,
        wanted: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Add `update`, what the layer before has to add, to residual [T, H] in place, and attention's after it.

        Returns:
            What this layer has to add, and the residual; of the tokens `wanted` [S] if that is given.
        """
        normed = (
            self.input_layernorm(residual) if update is None else self.input_layernorm.add(update, residual)
        )
        attended = self.self_attn(normed, rotary, attention)
        if wanted is not None:
            attended, residual = attended[..., wanted, :], residual[wanted]
        return self.mlp(self.post_attention_layernorm.add(attended, residual)), residual


class Decoder(nn.Module):
    """Embedding, layers, final norm and language-model head."""

    def __init__(self, config: ModelConfig, max_positions: int) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Parameter(
            torch.empty(config.vocab_size, config.hidden_size), requires_grad=False
        )
        self.layers = nn.ModuleList(DecoderLayer(config, index) for index in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.embed_tokens
        self.rotary = RotaryEmbedding(config, max_positions)

    def forward(
        self, input_ids: Tensor, positions: Tensor, attention: StepAttention, wanted: Tensor | None = None
    ) -> Tensor:
        """Final normalized hidden states of a step's tokens.

        Args:
            input_ids: [T] int64.
            positions: [T] int64.
            attention: Of the step.
            wanted: [S] int64, the tokens whose states are returned; None: all T.

        Returns:
            [S, H]
        """
        residual = functional.embedding(input_ids, self.embed_tokens)
        rotary = self.rotary.select(positions)
        update = None
        *layers, last = self.layers
        for layer in layers:
            update, residual = layer(update, residual, rotary, attention)
        # Nobody reads what the last feed-forward block would add to the other tokens.
        update, residual = last(update, residual, rotary, attention, wanted)
        hidden: Tensor = self.norm.add(update, residual)
        return hidden

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """Logits [S, V] of the S rows that sample, from their final hidden states [S, H]."""
        logits: Tensor = self.lm_head(hidden)
        return logits

    def pack(self, ops: DeviceOps) -> None:
        """Lay weights out for the device and compute with its operations; call once, after they are loaded."""
        for module in self.modules():
            if isinstance(module, Linear | RMSNorm):
                module.pack(ops)
