"""What a machine has to compute with."""

import os
import platform
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from minivllm_kernels.cpu.library import load_library
from minivllm_kernels.errors import CpuKernelsUnavailable
from minivllm_runtime.host_memory import host_memory_bytes


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """One device.

    Attributes:
        kind: "cpu" or "cuda:0" and so on.
        name: What its maker calls it.
        total_bytes: Its memory; of a CPU, no more than a container is limited to.
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
    num_threads = torch.get_num_threads()
    name = f"{_cpu_name()}, {num_threads} {'thread' if num_threads == 1 else 'threads'}"
    total_bytes = host_memory_bytes()
    free_bytes = min(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"), total_bytes)
    return DeviceFacts("cpu", name, total_bytes, free_bytes)


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
