"""Gated feed-forward block, SwiGLU (Shazeer, 2020, https://arxiv.org/abs/2002.05202)."""

from torch import Tensor, nn
from torch.nn import functional

from minivllm_runtime.layers.linear import Linear
from minivllm_runtime.models.model_config import ModelConfig


class GatedMLP(nn.Module):
    """down(silu(gate(x)) · up(x)), with gate and up as one product."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_up_proj = Linear(config.hidden_size, 2 * config.intermediate_size, bias=config.mlp_bias)
        self.down_proj = Linear(config.intermediate_size, config.hidden_size, bias=config.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [T, H] to [T, H]."""
        output: Tensor = self.down_proj(silu_and_mul(self.gate_up_proj(x)))
        return output


def silu_and_mul(gate_up: Tensor) -> Tensor:
    """silu(first half) · second half: [T, 2I] -> [T, I]."""
    if gate_up.is_cuda:
        from minivllm_kernels.silu_and_mul import silu_and_mul as kernel

        return kernel(gate_up)
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate).mul_(up)
