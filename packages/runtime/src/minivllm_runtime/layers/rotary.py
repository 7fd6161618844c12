"""Rotary position embedding (Su et al., 2021, https://arxiv.org/abs/2104.09864), half-split layout."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from minivllm_runtime.models.model_config import ModelConfig, RopeScaling


@dataclass(frozen=True, slots=True)
class RotaryTables:
    """What one step needs to rotate its tokens.

    Attributes:
        positions: [T] int64.
        cos_sin: [P, D] float32; cosines of D/2 frequencies, then their sines. Read by the kernel.
        cos, signed_sin: [T, 1, D] in the model's dtype, selected for `positions`. Read by the CPU operation:
            rotated = x · cos + swap_halves(x) · signed_sin.
    """

    positions: Tensor
    cos_sin: Tensor
    cos: Tensor | None
    signed_sin: Tensor | None


class RotaryEmbedding(nn.Module):
    """Cosines and sines of every position, and the rotation of query and key heads by them."""

    cos_sin: Tensor

    def __init__(self, config: ModelConfig, max_positions: int) -> None:
        super().__init__()
        frequencies = inverse_frequencies(config.head_dim, config.rope_theta, config.rope_scaling)
        angles = torch.outer(torch.arange(max_positions, dtype=torch.float32), frequencies)
        self.register_buffer("cos_sin", torch.cat((angles.cos(), angles.sin()), dim=-1), persistent=False)

    def select(self, positions: Tensor, dtype: torch.dtype) -> RotaryTables:
        """Prepare the tables for positions [T], once for all layers of a step."""
        if positions.is_cuda:
            return RotaryTables(positions, self.cos_sin, None, None)
        cos, sin = self.cos_sin[positions].to(dtype).unsqueeze(1).chunk(2, dim=-1)
        return RotaryTables(positions, self.cos_sin, torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1))


def rotate_in_place(query_key: Tensor, num_heads: int, tables: RotaryTables) -> None:
    """Rotate query and key heads that lie side by side, [T, Hq + Hkv, D], to their positions."""
    if tables.cos is None or tables.signed_sin is None:
        from minivllm_kernels.rotary_embedding import rotary_embedding

        rotary_embedding(query_key[:, :num_heads], query_key[:, num_heads:], tables.positions, tables.cos_sin)
        return
    first, second = query_key.chunk(2, dim=-1)
    swapped = torch.cat((second, first), dim=-1)
    torch.addcmul(query_key * tables.cos, swapped, tables.signed_sin, out=query_key)


def inverse_frequencies(head_dim: int, theta: float, scaling: RopeScaling | None) -> Tensor:
    """Angle per position of each of the head_dim/2 pairs, float32 [D/2].

    Linear scaling divides all of them; Llama-3 scaling divides those whose wavelength exceeds the original context
    and blends in between (Meta, Llama 3.1 reference code, 2024).
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    frequencies = 1.0 / (theta**exponents)
    if scaling is None:
        return frequencies
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    wavelengths = 2 * math.pi / frequencies
    context = scaling.original_max_position_embeddings
    blend = (context / wavelengths - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    smoothed = (1 - blend) * frequencies / scaling.factor + blend * frequencies
    scaled = torch.where(
        wavelengths > context / scaling.low_freq_factor, frequencies / scaling.factor, smoothed
    )
    return torch.where(wavelengths < context / scaling.high_freq_factor, frequencies, scaled)
