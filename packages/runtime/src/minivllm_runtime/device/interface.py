"""What a decoder needs of a device. An implementation lays weights out once and then computes with them."""

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

from minivllm_runtime.attention.step_attention import AttentionBackend

Projection = Callable[[Tensor], Tensor]
"""x [T, K] -> x · weightᵀ (+ bias), [T, N]; a `residual_linear`'s may come in parts, [S, T, N]."""


class Norm(Protocol):
    """RMS norm with a weight of its own: x · weight / sqrt(mean(x²) + eps) over the last dimension."""

    def __call__(self, x: Tensor) -> Tensor:
        """Normalize x [..., H]."""
        ...

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """Add x [T, H], whole or a `residual_linear`'s, to residual [T, H] in place; return the sum, normalized."""
        ...


class DeviceOps(Protocol):
    """The operations of one device, for tensors of one dtype."""

    @property
    def kernels(self) -> str:
        """What computes them: "PyTorch", "C" or "Triton"."""
        ...

    def linear(self, weight: Tensor, bias: Tensor | None) -> Projection:
        """A product with weight [N, K] and bias [N]; the caller drops its own copies."""
        ...

    def rms_norm(self, weight: Tensor, eps: float) -> Norm:
        """A norm with weight [H]."""
        ...

    def gated_linear(self, weight: Tensor, bias: Tensor | None) -> Projection:
        """silu(first half) · second half of a product with weight [2I, K]: [T, K] -> [T, I]."""
        ...

    def residual_linear(self, weight: Tensor, bias: Tensor | None) -> Projection:
        """A product with weight [N, K] that only a norm of this device adds to the residual.

        So it may be left in parts: [S, T, N] float32 in place of [T, N].
        """
        ...

    def attention(self, pools: Sequence[Tensor], num_heads: int, scale: float) -> AttentionBackend:
        """Attention over the KV pools of all layers, each [2, num_blocks + 1, Hkv, block_size, D]."""
        ...
