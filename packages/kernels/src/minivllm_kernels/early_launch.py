# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Programmatic dependent launch: a kernel may start while the one before it on the stream still runs.

GPUs of compute capability 9.0 hide the microsecond that a launch costs this way, inside CUDA graphs, too. A kernel
launched with `early_launch(device)` must call `wait_for_inputs` in every program, and before that may read only
what no kernel of the step writes: weights. As it returns, everything launched earlier is complete and visible.
"""

from functools import lru_cache

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@lru_cache
def early_launch(device: torch.device) -> dict[str, bool]:
    """Options of a launch on `device` whose kernel takes `EARLY` and calls `wait_for_inputs(EARLY)`."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0):
        return {"EARLY": True, "launch_pdl": True}
    return {"EARLY": False}


@triton.jit
def let_next_start(EARLY: tl.constexpr):
    """Allow the next kernel to start; it waits for this one where it needs its results."""
    if EARLY:
        gdc_launch_dependents()


@triton.jit
def wait_for_inputs(EARLY: tl.constexpr):
    """Wait until all kernels launched before this one are complete."""
    if EARLY:
        gdc_wait()
