"""Rotary position embedding (Su et al., 2021, https://arxiv.org/abs/2104.09864), half-split layout."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from minivllm_runtime.model_config import ModelConfig, RopeScaling


@dataclass(frozen=True, slots=True)
class RotaryTables:
    """What one step needs to rotate its T tokens.

    Attributes:
        positions: [T] int64.
        cos_sin: [P, D] float32, P positions; cosines of D/2 frequencies, then their sines.
    """

    positions: Tensor
    cos_sin: Tensor


class RotaryEmbedding(nn.Module):
    """Cosines and sines of every position."""

    cos_sin: Tensor

    def __init__(self, config: ModelConfig, max_positions: int) -> None:
        super().__init__()
        frequencies = inverse_frequencies(config.head_dim, config.rope_theta, config.rope_scaling)
        angles = torch.outer(torch.arange(max_positions, dtype=torch.float32), frequencies)
        self.register_buffer("cos_sin", torch.cat((angles.cos(), angles.sin()), dim=-1), persistent=False)

    def select(self, positions: Tensor) -> RotaryTables:
        """The tables for tokens at positions [T]."""
        return RotaryTables(positions, self.cos_sin)


@dataclass(frozen=True, slots=True)
class Rotation:
    """The rotation of T tokens for plain operations: x · cos + swap_halves(x) · signed_sin.

    Attributes:
        cos, signed_sin: [T, 1, D] in the dtype of the heads.
    """

    cos: Tensor
    signed_sin: Tensor

    @classmethod
    def of(cls, tables: RotaryTables, dtype: torch.dtype) -> "Rotation":
        """Look the tokens' angles up."""
        cos, sin = tables.cos_sin[tables.positions].to(dtype).unsqueeze(1).chunk(2, dim=-1)
        return cls(torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1))

    def apply(self, heads: Tensor) -> None:
        """Rotate heads [T, heads, D] in place."""
        first, second = heads.chunk(2, dim=-1)
        swapped = torch.cat((second, first), dim=-1)
        torch.addcmul(heads * self.cos, swapped, self.signed_sin, out=heads)


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
