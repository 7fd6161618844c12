"""Twin of `minivllm_kernels.sample`."""

import torch

from minivllm_kernels.sampling_table import SamplingTable
from minivllm_kernels.tensor_checks import require_sample


def sample(
    logits: torch.Tensor,
    token_ids: torch.Tensor,
    slots: torch.Tensor,
    positions: torch.Tensor,
    table: SamplingTable,
) -> torch.Tensor:
    """Sample an id from each of R rows, and write it to the requests' known ids.

    Order: temperature, top-k, top-p on what is left, min-p, draw. Ids tied at a threshold are all kept. The drawn id is
    the first at which the cumulative probability of those kept exceeds u times its total; u is Philox4x32-10 of the
    request's seed, its choice and the index of the output token.

    Args:
        logits: `[R, V]`, rows of any stride.
        token_ids: `[S, L]` int64, written at `[slots, positions]`.
        slots: `[R]` int64, a row of `token_ids` and of `table` each.
        positions: `[R]` int64 or int32, at least the length of the prompt in rows that draw.
        table: Of S slots.

    Returns:
        `[R]` int64; of several largest logits a greedy row takes the first, of NaN any row takes any id.

    Raises:
        InvalidTensor: The shapes, dtypes or layouts do not fit each other.
    """
    require_sample(logits, token_ids, slots, positions, table)
    rows = zip(
        logits, table.floats[slots].tolist(), table.integers[slots].tolist(), positions.tolist(), strict=True
    )
    sampled = torch.stack([_sample_row(*row) for row in rows])
    token_ids[slots, positions.long()] = sampled
    return sampled


def _sample_row(
    logits: torch.Tensor, floats: list[float], integers: list[int], position: int
) -> torch.Tensor:
    temperature, top_p, min_p = floats
    top_k, seed, choice, num_prompt_tokens = integers
    if temperature == 0:
        return (logits == logits.amax()).int().argmax()
    scaled = logits.float() / temperature
    if 0 < top_k < len(scaled):
        scaled = scaled.masked_fill(scaled < scaled.sort().values[-top_k], float("-inf"))
    if top_p < 1:
        largest = scaled.sort(descending=True).values
        mass = largest.double().softmax(dim=0)
        is_needed = mass.cumsum(dim=0) - mass < top_p
        scaled = scaled.masked_fill(scaled < largest[is_needed.sum().clamp(min=1) - 1], float("-inf"))
    if min_p > 0:
        scaled = scaled.masked_fill(scaled < scaled.amax() + torch.tensor(min_p).log(), float("-inf"))
    cumulative = scaled.double().softmax(dim=0).cumsum(dim=0)
    uniform = _philox(seed, choice, position - num_prompt_tokens) / 2**32
    return torch.searchsorted(cumulative, uniform * cumulative[-1], right=True).clamp(max=len(scaled) - 1)


def _philox(seed: int, choice: int, index: int) -> int:
    """First word of Philox4x32-10 (Salmon, Moraes, Dror and Shaw, SC 2011), keyed by the seed."""
    low = 0xFFFFFFFF
    key0, key1 = seed & low, seed >> 32 & low
    word0, word1, word2, word3 = choice, index, 0, 0
    for _ in range(10):
        product0, product1 = word0 * 0xD2511F53, word2 * 0xCD9E8D57
        word0, word1 = product1 >> 32 ^ word1 ^ key0, product1 & low
        word2, word3 = product0 >> 32 ^ word3 ^ key1, product0 & low
        key0, key1 = key0 + 0x9E3779B9 & low, key1 + 0xBB67AE85 & low
    return word0
