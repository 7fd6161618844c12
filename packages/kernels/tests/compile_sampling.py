"""Compiles what samples rows whose slots and positions lie anywhere; see compile_kernels."""

import sys

import torch
from compile_kernels import compile_only

from minivllm_kernels.sample import sample
from minivllm_kernels.sampling_table import SamplingTable


def launch_all() -> None:
    """One row and several, at addresses that are a multiple of 16 and that are not."""
    token_ids = torch.zeros(9, 512, dtype=torch.int64)
    table = SamplingTable(torch.zeros(9, 3), torch.zeros(9, 4, dtype=torch.int64))
    places = torch.zeros(8, dtype=torch.int64)
    for num_rows in (1, 3):
        for first in (0, 1):
            slots, positions = places[first:][:num_rows], places[first ^ 1 :][:num_rows]
            sample(torch.zeros(num_rows, 32_000, dtype=torch.float16), token_ids, slots, positions, table)


if __name__ == "__main__":
    compile_only(int(sys.argv[1]))
    launch_all()
