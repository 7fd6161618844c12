"""Steps as CUDA graphs: hundreds of kernels, one launch.

A graph replays the very launches that were captured, so its shape is fixed. There are two kinds, each for a list of
sizes, all captured before the first request; a step takes the smallest that holds it:

- decode graphs, by number of rows, for steps whose rows compute one token each;
- mixed graphs, by number of tokens, for prompts and decode rows in any mix.

What is left over is padding: it reads and writes the padding slot and the padding block, which belong to no request.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from minivllm_runtime.device_state.request_states import RequestStates
from minivllm_runtime.device_state.staging import host_tensor, upload
from minivllm_runtime.worker.input_batch import InputBatch
from minivllm_runtime.worker.step_columns import StepColumns

_LARGEST_MIXED = 4096
"""Tokens; launching the kernels of a larger step takes less time than running them."""


class GraphOutput(NamedTuple):
    """What a captured step leaves behind; the next replay of the same graph overwrites it.

    Attributes:
        logits: [R, V], of the last token of each row.
        sampled: [R] int64, an id drawn of each row's logits; of rows that sample it is also in the request states.
    """

    logits: Tensor
    sampled: Tensor


class _Graph(NamedTuple):
    graph: torch.cuda.CUDAGraph
    rows: Tensor
    output: GraphOutput


class _Shape(NamedTuple):
    graphs: dict[int, _Graph]
    size: int
    rows: Tensor
    make_batch: Callable[[], InputBatch]


def decode_sizes(max_rows: int) -> tuple[int, ...]:
    """Numbers of rows to capture decode graphs for: each of the smallest, then in steps of about an eighth."""
    sizes = [*range(1, 9), *range(12, 33, 4), *range(40, 65, 8), *range(80, 257, 16), *range(288, 513, 32)]
    within = [size for size in sizes if size < max_rows]
    return (*within, min(max_rows, sizes[-1]))


def mixed_sizes(max_tokens: int) -> tuple[int, ...]:
    """Numbers of tokens to capture mixed graphs for: powers of two from 16 on, and halfway between two of them."""
    largest = min(max_tokens, _LARGEST_MIXED)
    sizes = sorted(size << shift for size in (2, 3) for shift in range(3, largest.bit_length()))
    return (*(size for size in sizes if size < largest), largest)


def captured_rows(max_rows: int, max_tokens: int) -> int:
    """Rows of all graphs together: each keeps the logits of its own."""
    return sum(decode_sizes(max_rows)) + sum(min(size, max_rows) for size in mixed_sizes(max_tokens))


class StepGraphs:
    """Captured steps, and which of them a step may use.

    Args:
        step: Runs the model on a batch, draws ids of its logits, and writes them to the states.
        states: Of the requests.
        block_size: Tokens per KV block.
    """

    def __init__(
        self, step: Callable[[InputBatch], GraphOutput], states: RequestStates, block_size: int
    ) -> None:
        self._step = step
        self._states = states
        self._block_size = block_size
        self._decode: dict[int, _Graph] = {}
        self._mixed: dict[int, _Graph] = {}

    def capture(self, max_rows: int, max_tokens: int) -> None:
        """Capture graphs for steps of up to so many rows and tokens; each is run once before, to compile."""
        pool = torch.cuda.graph_pool_handle()
        # The largest first: the others then find room in its memory, for no two graphs run at once.
        for graphs, size, rows, make_batch in self._shapes(max_rows, max_tokens):
            self._step(make_batch())
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                output = self._step(make_batch())
            graphs[size] = _Graph(graph, rows, output)

    def _shapes(self, max_rows: int, max_tokens: int) -> Iterator[_Shape]:
        """All graphs to capture: where they are kept, their size, their static rows, and the batch made of them."""
        states, block_size = self._states, self._block_size
        for size in reversed(mixed_sizes(max_tokens)):
            rows = self._padding_rows(min(size, max_rows))
            yield _Shape(self._mixed, size, rows, partial(InputBatch.padded, rows, size, states, block_size))
        for size in reversed(decode_sizes(max_rows)):
            rows = self._padding_rows(size)
            starts = torch.arange(size + 1, dtype=torch.int32, device=rows.device)
            yield _Shape(
                self._decode, size, rows, partial(InputBatch.decode, rows, starts, states, block_size)
            )

    def replay(self, columns: StepColumns) -> GraphOutput | None:
        """Run a step by the smallest graph that holds it.

        Returns:
            The output, cut to the rows; None if no graph is large enough.
        """
        num_rows = len(columns.request_ids)
        graphs, size = (self._decode, num_rows) if columns.are_decodes else (self._mixed, columns.num_tokens)
        captured = _smallest(graphs, size)
        if captured is None or num_rows > captured.rows.shape[1]:
            return None
        captured.rows.copy_(upload(self._padded(columns, captured.rows.shape[1]), captured.rows.device))
        captured.graph.replay()
        return GraphOutput(captured.output.logits[:num_rows], captured.output.sampled[:num_rows])

    def _padding_rows(self, num_rows: int) -> Tensor:
        """[4, R] int64: rows that are all padding."""
        rows = torch.zeros(4, num_rows, dtype=torch.int64, device=self._states.token_ids.device)
        rows[0] = rows[3] = self._states.padding_slot
        return rows

    def _padded(self, columns: StepColumns, size: int) -> Tensor:
        """[4, size] int64: slots, starts, numbers of tokens, and the slots that receive the sampled ids."""
        padding_slot = self._states.padding_slot
        nothing = [0] * (size - len(columns.request_ids))
        slots = self._states.slots(columns.request_ids) + [padding_slot] * len(nothing)
        next_slots = slots
        if not all(columns.samples):
            sampling = (*columns.samples, *nothing)
            next_slots = [
                slot if samples else padding_slot for slot, samples in zip(slots, sampling, strict=True)
            ]
        return host_tensor((slots, [*columns.starts, *nothing], [*columns.nums_tokens, *nothing], next_slots))


def _smallest(graphs: dict[int, _Graph], size: int) -> _Graph | None:
    """The graph of the smallest size that is at least `size`; graphs were added from the largest size down."""
    sizes = [*reversed(graphs)]
    index = bisect_left(sizes, size)
    return graphs[sizes[index]] if index < len(sizes) else None
