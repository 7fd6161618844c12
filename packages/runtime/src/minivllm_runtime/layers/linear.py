"""Linear projection."""

import torch
from torch import Tensor, nn

from minivllm_runtime.device.interface import DeviceOps, Projection
from minivllm_runtime.device.torch_ops import TorchOps


class Linear(nn.Module):
    """y[T, N] = x[T, K] · weight[N, K]ᵀ (+ bias[N])."""

    def __init__(self, in_features: int, out_features: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(out_features), requires_grad=False) if bias else None
        self._project: Projection | None = None

    def pack(self, ops: DeviceOps) -> None:
        """Hand the weight to the device's own layout; the plain one is gone then."""
        self._project = self._bind(
            ops, self.weight.detach(), None if self.bias is None else self.bias.detach()
        )
        self.weight = nn.Parameter(self.weight.new_empty(0), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Project x [T, K] to [T, N]."""
        if self._project is None:
            return self._bind(TorchOps(), self.weight, self.bias)(x)
        return self._project(x)

    def _bind(self, ops: DeviceOps, weight: Tensor, bias: Tensor | None) -> Projection:
        return ops.linear(weight, bias)


class ResidualLinear(Linear):
    """A projection back to the residual, which `RMSNorm.add` adds: a device may leave it in parts, [S, T, N]."""

    def _bind(self, ops: DeviceOps, weight: Tensor, bias: Tensor | None) -> Projection:
        return ops.residual_linear(weight, bias)


class GatedLinear(Linear):
    """silu(x · gateᵀ) · (x · upᵀ): the rows of `weight` [2I, K] are those of gate, then those of up."""

    def _bind(self, ops: DeviceOps, weight: Tensor, bias: Tensor | None) -> Projection:
        return ops.gated_linear(weight, bias)
