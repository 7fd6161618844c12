"""Numbers on their way between host and device, where neither waits for the other.

What goes to a GPU starts in page-locked memory. PyTorch's host allocator keeps such a buffer, guarded by an event,
until the copy from it is done, and then hands it out again: while one step's numbers travel, the next step's are
written into another buffer.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike
from torch import Tensor


def host_tensor(numbers: Sequence[Any], dtype: DTypeLike = np.int64) -> Tensor:
    """A tensor of nested sequences of numbers, made several times faster than by `torch.tensor`."""
    return torch.from_numpy(np.array(numbers, dtype))


def upload(host: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor of the host to `device`, in stream order; on a CPU it is the same tensor.

    Only from pinned memory is the copy asynchronous. The allocator of pinned memory hands it out again when the copy
    is done, so `host` may be dropped at once.
    """
    if device.type == "cpu":
        return host
    return host.pin_memory().to(device, non_blocking=True)


class TableWrites:
    """Changes to a few entries of a table on the device, collected on the host and sent in one copy.

    Args:
        table: [rows, width], contiguous.
    """

    def __init__(self, table: Tensor) -> None:
        self._entries = table.view(-1)
        self._dtype = table.new_empty(0, device="cpu").numpy().dtype
        self._width = table.shape[1]
        self._places: list[int] = []
        self._values: list[float] = []

    def add(self, row: int, start: int, values: Sequence[float]) -> None:
        """Write `values` to table[row, start:] at the next flush."""
        place = row * self._width + start
        self._places.extend(range(place, place + len(values)))
        self._values.extend(values)

    def flush(self) -> None:
        """Send what was added since the last time. No entry may have been added twice."""
        if self._places:
            places = upload(host_tensor(self._places), self._entries.device)
            values = upload(host_tensor(self._values, self._dtype), self._entries.device)
            self._entries.scatter_(0, places, values)
            self.discard()

    def discard(self) -> None:
        """Forget what was added since the last time."""
        self._places, self._values = [], []


class HostCopy:
    """What a step computed, sampled ids for instance, on its way to the host.

    Args:
        source: On the device. On a GPU what is launched after this may overwrite it, on a CPU nothing before `wait`.
    """

    def __init__(self, source: Tensor) -> None:
        self._done: torch.cuda.Event | None = None
        self._copy = source
        if source.is_cuda:
            self._copy = torch.empty(source.shape, dtype=source.dtype, pin_memory=True)
            self._copy.copy_(source, non_blocking=True)
            self._done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._done.record()

    def wait(self) -> list[Any]:
        """The numbers, in nested lists, once they have arrived."""
        if self._done is not None:
            self._done.synchronize()
        return self._copy.tolist()
