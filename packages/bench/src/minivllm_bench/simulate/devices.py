"""Devices that a roofline can be named after, with the peak rates of their makers' data sheets: dense, bfloat16."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from minivllm_scheduler.simulation import DeviceSheet

DEVICES: Final[Mapping[str, DeviceSheet]] = MappingProxyType(
    {
        "a100-80g": DeviceSheet(flops_per_s=312e12, bytes_per_s=2.039e12),
        "h100": DeviceSheet(flops_per_s=989e12, bytes_per_s=3.35e12),
        "h200": DeviceSheet(flops_per_s=989e12, bytes_per_s=4.8e12),
        "l4": DeviceSheet(flops_per_s=121e12, bytes_per_s=0.3e12),
    }
)
