"""Getting small tensors to the device without waiting for it."""

import torch
from torch import Tensor


def upload(host: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor of the host to `device`, in stream order; on a CPU it is the same tensor.

    Only from pinned memory is the copy asynchronous. The allocator of pinned memory hands it out again when the copy
    is done, so `host` may be dropped at once.
    """
    if device.type == "cpu":
        return host
    return host.pin_memory().to(device, non_blocking=True)
