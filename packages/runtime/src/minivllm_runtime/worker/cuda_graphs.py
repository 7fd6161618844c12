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
from minivllm_scheduler import ScheduledRequest


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

    def replay(self, rows: Sequence[ScheduledRequest]) -> DecodeOutput | None:
        """Run a step of decode rows by the smallest graph that holds them.

        Returns:
            The output, cut to the rows; None if there is no graph of that size, or a row is not of one token.
        """
        num_rows = len(rows)
        index = bisect_left(self._sizes, num_rows)
        if index == len(self._sizes) or any(row.num_tokens != 1 for row in rows):
            return None
        graph, device_rows, output = self._graphs[self._sizes[index]]
        device_rows.copy_(upload(self._padded(rows, self._sizes[index]), device_rows.device))
        graph.replay()
        return DecodeOutput(output.logits[:num_rows], output.sampled[:num_rows])

    def _padded(self, rows: Sequence[ScheduledRequest], size: int) -> Tensor:
        """[3, size]: slots, positions, and slots that receive the sampled ids."""
        padding_slot, slot = self._states.padding_slot, self._states.slot
        slots = [slot(row.request_id) for row in rows]
        padding = [padding_slot] * (size - len(rows))
        targets = [taken if row.samples else padding_slot for taken, row in zip(slots, rows, strict=True)]
        positions = [row.start for row in rows] + [0] * len(padding)
        return torch.tensor([slots + padding, positions, targets + padding])

    def _run(self, rows: Tensor, query_start_loc: Tensor) -> DecodeOutput:
        return self._step(InputBatch.decode(rows, query_start_loc, self._states, self._block_size))
