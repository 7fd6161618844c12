"""Operations of the Triton kernels: CUDA devices."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from minivllm_kernels.gate_up import interleave_gate_up
from minivllm_kernels.gemv import gemv
from minivllm_kernels.rms_norm import add_rms_norm, rms_norm
from minivllm_kernels.silu_and_mul import silu_and_mul
from minivllm_kernels.small_batch_linear import (
    max_small_batch,
    num_k_splits,
    small_batch_gated_linear,
    small_batch_linear,
)
from minivllm_kernels.tensor_checks import GROUP_ROWS
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
        return add_rms_norm(x, residual, self._weight, self._eps)


class TritonOps:
    """See interface.DeviceOps.

    Args:
        dtype: Of the activations.
    """

    kernels = "Triton"

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def linear(self, weight: Tensor, bias: Tensor | None) -> Projection:
        """A product by cuBLAS; of a few tokens, where only reading the weight takes time, by a kernel of ours."""
        return self._linear(weight, bias, may_split=False)

    def residual_linear(self, weight: Tensor, bias: Tensor | None) -> Projection:
        """The same; of a few tokens, in parts that the norm's kernel adds."""
        return self._linear(weight, bias, may_split=True)

    def _linear(self, weight: Tensor, bias: Tensor | None, *, may_split: bool) -> Projection:
        largest_small_batch = max_small_batch(weight)

        def project(x: Tensor) -> Tensor:
            num_tokens = x.shape[0]
            if num_tokens == 1:
                return gemv(x, weight, bias)
            if num_tokens <= largest_small_batch:
                num_splits = num_k_splits(num_tokens, weight) if may_split else 1
                return small_batch_linear(x, weight, bias, num_splits=num_splits)
            return functional.linear(x, weight, bias)

        return project

    def rms_norm(self, weight: Tensor, eps: float) -> TritonNorm:
        """A norm with weight [H]."""
        return TritonNorm(weight.to(self._dtype), eps)

    def gated_linear(self, weight: Tensor, bias: Tensor | None) -> Projection:
        """A product and its halves joined, in one kernel for a few tokens."""
        most_fused, half = max_small_batch(weight), weight.shape[0] // 2
        if most_fused and half % GROUP_ROWS == 0:
            group_size = GROUP_ROWS
            weight, bias = interleave_gate_up(weight), None if bias is None else interleave_gate_up(bias)
        else:
            most_fused, group_size = 0, half
        project = self.linear(weight, bias)

        def gate(x: Tensor) -> Tensor:
            if 1 < x.shape[0] <= most_fused:
                return small_batch_gated_linear(x, weight, bias)
            return silu_and_mul(project(x), group_size)

        return gate

    def attention(self, pools: Sequence[Tensor], num_heads: int, scale: float) -> TritonAttentionBackend:
        """The paged kernels."""
        return TritonAttentionBackend(pools, num_heads, scale)
