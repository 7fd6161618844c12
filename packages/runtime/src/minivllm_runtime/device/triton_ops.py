"""Operations of the Triton kernels: CUDA devices."""

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional

from minivllm_kernels.rms_norm import rms_norm
from minivllm_kernels.silu_and_mul import silu_and_mul
from minivllm_runtime.attention.triton_backend import TritonAttentionBackend
from minivllm_runtime.device.interface import Projection


class TritonNorm:
    """RMS norm; see interface.Norm."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self._weight = weight
        self._eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        """Normalize x [..., H]."""
        return rms_norm(x, self._weight, self._eps)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """Add x to residual in place and normalize the sum."""
        return rms_norm(residual.add_(x), self._weight, self._eps)


class TritonOps:
    """See interface.DeviceOps."""

    def linear(self, weight: Tensor, bias: Tensor | None) -> Projection:
        """A product by cuBLAS."""
        return lambda x: functional.linear(x, weight, bias)

    def rms_norm(self, weight: Tensor, eps: float) -> TritonNorm:
        """A norm with weight [H]."""
        return TritonNorm(weight, eps)

    def silu_and_mul(self, gate_up: Tensor) -> Tensor:
        """silu(first half) · second half."""
        return silu_and_mul(gate_up)

    def attention(self, pools: Sequence[Tensor], num_heads: int, scale: float) -> TritonAttentionBackend:
        """The paged kernels."""
        return TritonAttentionBackend(pools, num_heads, scale)
