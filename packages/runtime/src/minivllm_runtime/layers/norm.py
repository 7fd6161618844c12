"""Root-mean-square normalization (Zhang and Sennrich, 2019, https://arxiv.org/abs/1910.07467)."""

import torch
from torch import Tensor, nn

from minivllm_runtime.device.interface import DeviceOps, Norm
from minivllm_runtime.device.torch_ops import TorchNorm


class RMSNorm(nn.Module):
    """x · weight / sqrt(mean(x²) + eps) over the last dimension, computed in float32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, dtype=torch.float32), requires_grad=False)
        self._eps = eps
        self._norm: Norm | None = None

    def pack(self, ops: DeviceOps) -> None:
        """Hand the weight to the device."""
        self._norm = ops.rms_norm(self.weight.detach(), self._eps)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x [..., H]."""
        return self._packed()(x)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """Add x [T, H], or a ResidualLinear's parts of it, to residual [T, H] in place; return the sum, normalized."""
        return self._packed().add(x, residual)

    def _packed(self) -> Norm:
        return TorchNorm(self.weight, self._eps) if self._norm is None else self._norm
