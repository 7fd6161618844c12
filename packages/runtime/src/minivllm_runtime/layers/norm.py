"""Root-mean-square normalization (Zhang and Sennrich, 2019, https://arxiv.org/abs/1910.07467)."""

import torch
from torch import Tensor, nn
from torch.nn import functional

_FEW_ELEMENTS = 2**16
"""Up to here the time of a norm is that of starting its operations, not of reading its input."""


class RMSNorm(nn.Module):
    """x · weight / sqrt(mean(x²) + eps) over the last dimension, computed in float32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, dtype=torch.float32), requires_grad=False)
        self.size = size
        self.eps = eps
        self._mirrored_weight: Tensor | None = None

    def pack(self, dtype: torch.dtype) -> None:
        """Fit the weight to inputs of `dtype`; call once, after it is loaded. On a CPU it stays float32 as well."""
        if self.weight.is_cuda:
            self.weight = nn.Parameter(self.weight.to(dtype), requires_grad=False)
        elif dtype != torch.float32:
            self._mirrored_weight = torch.cat((self.weight, self.weight)).to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x [..., H]."""
        if x.is_cuda:
            from minivllm_kernels.rms_norm import rms_norm

            return rms_norm(x, self.weight, self.eps)
        if self._mirrored_weight is not None and x.numel() <= _FEW_ELEMENTS:
            # (x, -x) has mean 0 and variance mean(x²): its layer norm is the RMS norm, in one operation instead of ten.
            mirrored = torch.cat((x, -x), dim=-1)
            normed = functional.layer_norm(mirrored, (2 * self.size,), self._mirrored_weight, None, self.eps)
            return normed[..., : self.size]
        # Widened by hand: mixed dtypes inside one operation take a path that is twenty times slower.
        return functional.rms_norm(x.float(), (self.size,), self.weight, self.eps).to(x.dtype)
