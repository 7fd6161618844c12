"""Operations of the compiled kernels: bfloat16 on CPUs with AVX512-BF16."""

from collections.abc import Sequence

from torch import Tensor

from minivllm_kernels.cpu.ops import CpuOps, pack_weight
from minivllm_runtime.attention.native_backend import NativeAttentionBackend
from minivllm_runtime.device.interface import Projection
from minivllm_runtime.device.torch_ops import TorchOps


class NativeNorm:
    """RMS norm; see interface.Norm."""

    def __init__(self, kernels: CpuOps, weight: Tensor, eps: float) -> None:
        self._kernels = kernels
        self._weight = weight.float().contiguous()
        self._eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        """Normalize x [..., H]."""
        return self._kernels.rms_norm(x, self._weight, self._eps)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """Add x to residual in place and normalize the sum."""
        return self._kernels.add_rms_norm(x, residual, self._weight, self._eps)


class NativeOps:
    """See interface.DeviceOps.

    Args:
        kernels: Loaded.
        has_matrix_tiles: Whether the processor has AMX, with which oneDNN's products are the faster ones.
    """

    kernels = "C"

    def __init__(self, kernels: CpuOps, *, has_matrix_tiles: bool) -> None:
        self._kernels = kernels
        self._has_matrix_tiles = has_matrix_tiles

    def linear(self, weight: Tensor, bias: Tensor | None) -> Projection:
        """A product with a weight in panels, or in oneDNN's layout."""
        if self._has_matrix_tiles:
            return TorchOps().linear(weight, bias)
        packed = pack_weight(weight, bias)
        return lambda x: self._kernels.linear(x, packed)

    def rms_norm(self, weight: Tensor, eps: float) -> NativeNorm:
        """A norm with weight [H]."""
        return NativeNorm(self._kernels, weight, eps)

    def gated_linear(self, weight: Tensor, bias: Tensor | None) -> Projection:
        """A product, then its halves joined."""
        project = self.linear(weight, bias)
        return lambda x: self._kernels.silu_and_mul(project(x))

    def residual_linear(self, weight: Tensor, bias: Tensor | None) -> Projection:
        """A product like any other."""
        return self.linear(weight, bias)

    def attention(self, pools: Sequence[Tensor], num_heads: int, scale: float) -> NativeAttentionBackend:
        """Attention that reads the blocks where they lie."""
        return NativeAttentionBackend(self._kernels, pools, num_heads, scale)
