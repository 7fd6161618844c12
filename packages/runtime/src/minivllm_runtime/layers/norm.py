"""Root-mean-square normalization (Zhang and Sennrich, 2019, https://arxiv.org/abs/1910.07467)."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class RMSNorm(nn.Module):
    """x · weight / sqrt(mean(x²) + eps) over the last dimension, summed in float32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size), requires_grad=False)
        self.size = size
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x [..., H]."""
        if x.is_cuda:
            from minivllm_kernels.rms_norm import rms_norm

            return rms_norm(x, self.weight, self.eps)
        return functional.rms_norm(x, (self.size,), self.weight, self.eps)
