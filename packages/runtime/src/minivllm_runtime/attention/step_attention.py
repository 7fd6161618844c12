"""What a model sees of attention, and what an implementation is built from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from minivllm_kernels.head_norms import HeadNorms
from minivllm_runtime.attention.rotary import RotaryTables


@dataclass(frozen=True, slots=True)
class BatchLayout:
    """Where the tokens of one step lie, R rows with T tokens in all.

    Attributes:
        query_lens: Tokens of each row in this step, on the host.
        context_lens: Tokens of each row once this step is written (earlier ones + query_lens), on the host.
        query_start_loc: [R + 1] int32; row r owns tokens query_start_loc[r] up to query_start_loc[r + 1].
        context_lens_device: [R] int32, context_lens on the device.
        block_tables: [R, M] int32; entries past ceil(context / block_size) are undefined.
        slot_mapping: [T] int64; block id · block_size + offset, where each token's K and V go.
        longest_first: [R] int32, rows by falling context length. None where nobody sorted them: steps with prompts.
    """

    query_lens: Sequence[int]
    context_lens: Sequence[int]
    query_start_loc: Tensor
    context_lens_device: Tensor
    block_tables: Tensor
    slot_mapping: Tensor
    longest_first: Tensor | None = None


class StepAttention(Protocol):
    """Causal attention for the tokens of one step, planned once and used by every layer."""

    def attend(
        self, layer_index: int, heads: Tensor, rotary: RotaryTables, norms: HeadNorms | None = None
    ) -> Tensor:
        """Normalize queries and keys, rotate them to their positions, write K and V to the layer's cache, then attend.

        Args:
            layer_index: Which layer's cache.
            heads: [T, Hq + 2·Hkv, D]: query, key and value heads of each token, side by side; may be overwritten.
            rotary: Of the T tokens.
            norms: Of the layer's query and key heads; None if its model has none.

        Returns:
            [T, Hq, D]
        """
        ...


class AttentionBackend(Protocol):
    """Plans the attention of a step over the caches it was built with.

    Attributes:
        reads_unwritten_slots: Whether slots behind the end of a context must hold finite numbers, though their weight
            is zero.
    """

    reads_unwritten_slots: bool

    def plan(self, layout: BatchLayout) -> StepAttention:
        """Prepare everything that is the same for all layers."""
        ...
