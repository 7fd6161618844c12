"""Twin of `minivllm_kernels.decode_inputs`."""

import torch

from minivllm_kernels.decode_step import DecodeStep
from minivllm_kernels.tensor_checks import require_request_tables


def decode_inputs(
    slots: torch.Tensor,
    positions: torch.Tensor,
    token_ids: torch.Tensor,
    block_tables: torch.Tensor,
    block_size: int,
) -> DecodeStep:
    """Look up what each of R rows computes next: one token of one request.

    Args:
        slots: `[R]` int64, the request of each row as a row of the tables.
        positions: `[R]` int64, which of its tokens; all before it are in the cache.
        token_ids: `[S, L]` int64, known ids of the requests.
        block_tables: `[S, M]` int32.
        block_size: tokens per KV block.

    Returns:
        The rows' ids, context lengths, tables and slots, and their order by length.

    Raises:
        InvalidTensor: The shapes, dtypes or layouts do not fit each other.
    """
    require_request_tables(slots, positions, token_ids, block_tables)
    tables = block_tables[slots]
    block_ids = tables.gather(1, (positions // block_size)[:, None]).squeeze(1).long()
    slot_mapping = block_ids * block_size + positions % block_size
    longest_first = positions.sort(descending=True, stable=True).indices.int()
    return DecodeStep(token_ids[slots, positions], (positions + 1).int(), tables, slot_mapping, longest_first)
