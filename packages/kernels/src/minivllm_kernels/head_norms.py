"""The norms of queries and keys that attention applies before it rotates them."""

from typing import NamedTuple

import torch


class HeadNorms(NamedTuple):
    """RMS normalization of each query and key head, as Qwen3 has it; that of `rms_norm` over D elements.

    Attributes:
        query: `[D]` float32, the weight of all query heads; used in the dtype of the heads.
        key: `[D]` float32, that of all key heads.
        eps: added to the mean square.
    """

    query: torch.Tensor
    key: torch.Tensor
    eps: float


Norm = tuple[torch.Tensor, float] | None
"""Weight and eps, as a kernel takes them; None where nothing is to be normalized."""


def query_and_key_norm(norms: HeadNorms | None) -> tuple[Norm, Norm]:
    """The norm of the query heads and that of the key heads, for a kernel."""
    return (None, None) if norms is None else ((norms.query, norms.eps), (norms.key, norms.eps))
