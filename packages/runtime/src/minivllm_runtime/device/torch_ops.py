"""Operations of PyTorch: every CPU and dtype."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from minivllm_runtime.attention.head_norms import rms_norm
from minivllm_runtime.attention.torch_backend import TorchAttentionBackend
from minivllm_runtime.device.interface import Projection

_PACKING_ROWS = 16
"""Rows of the product oneDNN optimizes a layout for; between 1 and 64 the choice moves time by under 5 %."""


class TorchNorm:
    """RMS norm, computed in float32; see interface.Norm."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self._weight = weight.float()
        self._eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        """Normalize x [..., H]."""
        return rms_norm(x, self._weight, self._eps)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """Add x to residual in place and normalize the sum."""
        return self(residual.add_(x))


class TorchOps:
    """See interface.DeviceOps."""

    kernels = "PyTorch"

    def linear(self, weight: Tensor, bias: Tensor | None) -> Projection:
        """A plain product; a bfloat16 weight is laid out for oneDNN, whose plain product reads it twice."""
        if weight.dtype != torch.bfloat16 or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return lambda x: functional.linear(x, weight, bias)
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, _PACKING_ROWS)

        def project(x: Tensor) -> Tensor:
            product: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
            return product

        return project

    def rms_norm(self, weight: Tensor, eps: float) -> TorchNorm:
        """A norm with weight [H]."""
        return TorchNorm(weight, eps)

    def gated_linear(self, weight: Tensor, bias: Tensor | None) -> Projection:
        """A product, then its halves joined."""
        project = self.linear(weight, bias)

        def gate(x: Tensor) -> Tensor:
            gate, up = project(x).chunk(2, dim=-1)
            return functional.silu(gate).mul_(up)

        return gate

    def residual_linear(self, weight: Tensor, bias: Tensor | None) -> Projection:
        """A product like any other."""
        return self.linear(weight, bias)

    def attention(self, pools: Sequence[Tensor], num_heads: int, scale: float) -> TorchAttentionBackend:
        """Gathered blocks and PyTorch's own attention."""
        return TorchAttentionBackend(pools, num_heads, scale)
