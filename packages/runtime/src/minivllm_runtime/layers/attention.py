"""Grouped-query self-attention over the paged KV cache."""

from torch import Tensor, nn

from minivllm_kernels.head_norms import HeadNorms
from minivllm_runtime.attention.rotary import RotaryTables
from minivllm_runtime.attention.step_attention import StepAttention
from minivllm_runtime.layers.linear import Linear, ResidualLinear
from minivllm_runtime.layers.norm import RMSNorm
from minivllm_runtime.model_config import ModelConfig


class SelfAttention(nn.Module):
    """One layer's projections, head norms, rotation and attention. q, k and v are one product."""

    def __init__(self, config: ModelConfig, layer_index: int) -> None:
        super().__init__()
        self.layer_index = layer_index
        self.head_dim = config.head_dim
        all_heads = config.num_heads + 2 * config.num_kv_heads
        self.qkv_proj = Linear(config.hidden_size, all_heads * config.head_dim, bias=config.attention_bias)
        self.o_proj = ResidualLinear(
            config.num_heads * config.head_dim, config.hidden_size, bias=config.attention_output_bias
        )
        # They hold the weights; who attends applies them.
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps) if config.qk_norm else None
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps) if config.qk_norm else None
        self._norm_eps = config.rms_norm_eps

    def forward(self, x: Tensor, rotary: RotaryTables, attention: StepAttention) -> Tensor:
        """Map x [T, H] to what is to be added to the residual, [T, H] or parts of it.

        Writes this layer's K and V of the T tokens to the cache.
        """
        heads = self.qkv_proj(x).view(x.shape[0], -1, self.head_dim)
        attended = attention.attend(self.layer_index, heads, rotary, self._head_norms())
        output: Tensor = self.o_proj(attended.reshape(x.shape[0], -1))
        return output

    def _head_norms(self) -> HeadNorms | None:
        if self.q_norm is None or self.k_norm is None:
            return None
        return HeadNorms(self.q_norm.weight, self.k_norm.weight, self._norm_eps)
