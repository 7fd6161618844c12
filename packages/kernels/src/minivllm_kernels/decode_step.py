"""What the rows of a decode step compute on, and which contexts they attend to."""

from typing import NamedTuple

import torch


class PagedContexts(NamedTuple):
    """Where the contexts of B requests lie.

    Attributes:
        block_tables: `[B, M]` int32; entries past `ceil(context_len / block_size)` are never read.
        context_lens: `[B]` int32, tokens of the context, the newest included; 0 marks padding.
        order: `[B]` int32, each request once, in the order in which programs take them up: the longest contexts
            first keep a GPU busy to the end (longest processing time first; Graham, 1969). None: as they are.
            Not checked: the rows of a request that is missing are not written.
    """

    block_tables: torch.Tensor
    context_lens: torch.Tensor
    order: torch.Tensor | None = None


class DecodeStep(NamedTuple):
    """R rows, each the newest token of one request; from `decode_inputs`.

    Attributes:
        input_ids: `[R]` int64.
        context_lens: `[R]` int32, tokens up to the newest, it included.
        block_tables: `[R, M]` int32, undefined past ceil(context_len / block_size).
        slot_mapping: `[R]` int64, block id · block_size + offset, where the token's key and value go.
        longest_first: `[R]` int32, the rows by falling context length, equal ones in their order.
    """

    input_ids: torch.Tensor
    context_lens: torch.Tensor
    block_tables: torch.Tensor
    slot_mapping: torch.Tensor
    longest_first: torch.Tensor
