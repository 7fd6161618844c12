"""Gated feed-forward block, SwiGLU (Shazeer, 2020, https://arxiv.org/abs/2002.05202)."""

from torch import Tensor, nn

from minivllm_runtime.device.interface import DeviceOps
from minivllm_runtime.device.torch_ops import TorchOps
from minivllm_runtime.layers.linear import Linear
from minivllm_runtime.models.model_config import ModelConfig


class GatedMLP(nn.Module):
    """down(silu(gate(x)) · up(x)), with gate and up as one product."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_up_proj = Linear(config.hidden_size, 2 * config.intermediate_size, bias=config.mlp_bias)
        self.down_proj = Linear(config.intermediate_size, config.hidden_size, bias=config.mlp_bias)
        self._silu_and_mul = TorchOps().silu_and_mul

    def pack(self, ops: DeviceOps) -> None:
        """Compute with the device's operations; the projections are packed on their own."""
        self._silu_and_mul = ops.silu_and_mul

    def forward(self, x: Tensor) -> Tensor:
        """Map x [T, H] to [T, H]."""
        output: Tensor = self.down_proj(self._silu_and_mul(self.gate_up_proj(x)))
        return output
