"""Where tests of the engine run: always on a CPU, and on a CUDA device if there is one."""

import pytest
import torch

NEEDS_CUDA = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def on_cuda(*values: object, id: str | None = None):  # noqa: A002 - pytest's own name for it
    """A parameter set that needs a CUDA device."""
    return pytest.param(*values, id=id, marks=NEEDS_CUDA)
