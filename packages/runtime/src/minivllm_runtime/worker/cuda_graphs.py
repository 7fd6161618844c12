"""Decode steps as CUDA graphs: hundreds of kernels, one launch.

A graph replays the very launches that were captured, so the number of rows is fixed. There is one graph for each of a
list of sizes, captured before the first request, and a step takes the smallest that holds its rows. The rows left over
are padding: they read and write the padding slot and the padding block, which belong to no request.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from minivllm_runtime.sampling.upload import upload
from minivllm_runtime.worker.input_batch import InputBatch
from minivllm_runtime.worker.request_states import RequestStates
from minivllm_runtime.worker.staging import host_tensor
from minivllm_runtime.worker.step_columns import StepColumns


class DecodeOutput(NamedTuple):
    """What a captured step leaves behind; the next replay of the same graph overwrites it.

    Attributes:
        logits: [R, V].
        sampled: [R] int64, the most probable id of each row, which is also in the request states.
    """

    logits: Tensor
    sampled: Tensor


class _Graph(NamedTuple):
    graph: torch.cuda.CUDAGraph
    rows: Tensor
    output: DecodeOutput


def padded_sizes(max_rows: int) -> tuple[int, ...]:
    """Numbers of rows to capture graphs for: each of the smallest, then in steps of about an eighth."""
    sizes = [*range(1, 9), *range(12, 33, 4), *range(40, 65, 8), *range(80, 257, 16), *range(288, 513, 32)]
    within = [size for size in sizes if size < max_rows]
    return (*within, min(max_rows, sizes[-1]))


class DecodeGraphs:
    """Graphs of a decode step by padded number of rows.

    Args:
        step: Runs model and argmax on a batch, and writes the ids to the states.
        states: Of the requests.
        block_size: Tokens per KV block.
    """

    def __init__(
        self, step: Callable[[InputBatch], DecodeOutput], states: RequestStates, block_size: int
    ) -> None:
        self._step = step
        self._states = states
        self._block_size = block_size
        self._sizes: tuple[int, ...] = ()
        self._graphs: dict[int, _Graph] = {}

    def capture(self, sizes: Sequence[int]) -> None:
        """Capture a graph for each of `sizes`; each size is run once before, so that its kernels are compiled."""
        pool = None
        # The largest first: the smaller ones then find room in its memory, for no two graphs run at once.
        for size in sorted(sizes, reverse=True):
            rows = torch.zeros(3, size, dtype=torch.int64, device=self._states.token_ids.device)
            rows[0] = rows[2] = self._states.padding_slot
            starts = torch.arange(size + 1, dtype=torch.int32, device=rows.device)
            self._run(rows, starts)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                output = self._run(rows, starts)
            pool = graph.pool()
            self._graphs[size] = _Graph(graph, rows, output)
        self._sizes = tuple(sorted(self._graphs))

    def replay(self, columns: StepColumns) -> DecodeOutput | None:
        """Run a step of decode rows by the smallest graph that holds them.

        Returns:
            The output, cut to the rows; None if there is no graph of that size, or a row is not of one token.
        """
        num_rows = len(columns.request_ids)
        index = bisect_left(self._sizes, num_rows)
        if index == len(self._sizes) or not columns.are_decodes:
            return None
        graph, device_rows, output = self._graphs[self._sizes[index]]
        device_rows.copy_(upload(self._padded(columns, self._sizes[index]), device_rows.device))
        graph.replay()
        return DecodeOutput(output.logits[:num_rows], output.sampled[:num_rows])

    def _padded(self, columns: StepColumns, size: int) -> Tensor:
        """[3, size]: slots, positions, and slots that receive the sampled ids."""
        padding_slot = self._states.padding_slot
        num_padding = size - len(columns.request_ids)
        slots = self._states.slots(columns.request_ids) + [padding_slot] * num_padding
        positions = [*columns.starts, *[0] * num_padding]
        targets = slots
        if not all(columns.samples):
            sampling = (*columns.samples, *[False] * num_padding)
            targets = [
                slot if samples else padding_slot for slot, samples in zip(slots, sampling, strict=True)
            ]
        return host_tensor((slots, positions, targets))

    def _run(self, rows: Tensor, query_start_loc: Tensor) -> DecodeOutput:
        return self._step(InputBatch.decode(rows, query_start_loc, self._states, self._block_size))
