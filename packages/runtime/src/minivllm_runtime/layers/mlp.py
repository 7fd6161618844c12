"""Gated feed-forward block, SwiGLU (Shazeer, 2020, https://arxiv.org/abs/2002.05202)."""

from torch import Tensor, nn

from minivllm_runtime.layers.linear import GatedLinear, ResidualLinear
from minivllm_runtime.model_config import ModelConfig


class GatedMLP(nn.Module):
    """down(silu(gate(x)) · up(x)), with gate and up as one product."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_up_proj = GatedLinear(
            config.hidden_size, 2 * config.intermediate_size, bias=config.mlp_bias
        )
        self.down_proj = ResidualLinear(config.intermediate_size, config.hidden_size, bias=config.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [T, H] to what is to be added to the residual, [T, H] or parts of it."""
        output: Tensor = self.down_proj(self.gate_up_proj(x))
        return output
