"""What a machine has to compute with."""

import os
import platform
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from minivllm_kernels.cpu.library import load_library
from minivllm_kernels.errors import CpuKernelsUnavailable


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """One device.

    Attributes:
        kind: "cpu" or "cuda:0" and so on.
        name: What its maker calls it.
        total_bytes: Its memory.
        free_bytes: Of that, what nobody uses now.
    """

    kind: str
    name: str
    total_bytes: int
    free_bytes: int


def read_devices() -> tuple[DeviceFacts, ...]:
    """The CPU, then every CUDA device that the tensor library can use."""
    return (_read_cpu(), *(_read_cuda(index) for index in range(torch.cuda.device_count())))


def obstacle_to_cpu_kernels() -> str | None:
    """What keeps the compiled kernels from running here; None if nothing does."""
    try:
        load_library()
    except CpuKernelsUnavailable as reason:
        return str(reason)
    return None


def _read_cpu() -> DeviceFacts:
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    num_threads = torch.get_num_threads()
    name = f"{_cpu_name()}, {num_threads} {'thread' if num_threads == 1 else 'threads'}"
    total, free = (os.sysconf(pages) * page_bytes for pages in ("SC_PHYS_PAGES", "SC_AVPHYS_PAGES"))
    return DeviceFacts("cpu", name, total, free)


def _cpu_name() -> str:
    """What its maker calls it where the system tells, as Linux does on most CPUs; else its architecture."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _read_cuda(index: int) -> DeviceFacts:
    free, total = torch.cuda.mem_get_info(index)
    return DeviceFacts(f"cuda:{index}", torch.cuda.get_device_name(index), total, free)
