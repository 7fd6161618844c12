"""Sampling parameters as the sampling kernel finds them."""

from typing import NamedTuple

import torch


class SamplingTable(NamedTuple):
    """How each request wants to be sampled, a row for each of S slots.

    Attributes:
        floats: `[S, 3]` float32: temperature, 0 takes the most probable id; top_p, 1 is off; min_p, 0 is off.
        integers: `[S, 4]` int64: top_k, 0 is off; the bits of an unsigned 64-bit seed; the choice; the prompt's length.
    """

    floats: torch.Tensor
    integers: torch.Tensor
