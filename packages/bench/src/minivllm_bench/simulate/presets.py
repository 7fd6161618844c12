"""Devices and models that a roofline can be named after.

Peak rates are those of the makers' data sheets, dense, in bfloat16; shapes are those of the models' `config.json`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from minivllm_scheduler.simulation import DeviceSheet, ModelShape

DEVICES: Final[Mapping[str, DeviceSheet]] = MappingProxyType(
    {
        "a100-80g": DeviceSheet(flops_per_s=312e12, bytes_per_s=2.039e12),
        "h100": DeviceSheet(flops_per_s=989e12, bytes_per_s=3.35e12),
        "h200": DeviceSheet(flops_per_s=989e12, bytes_per_s=4.8e12),
        "l4": DeviceSheet(flops_per_s=121e12, bytes_per_s=0.3e12),
    }
)

MODELS: Final[Mapping[str, ModelShape]] = MappingProxyType(
    {
        "smollm2-135m": ModelShape(
            num_layers=30,
            hidden_size=576,
            intermediate_size=1536,
            num_heads=9,
            num_kv_heads=3,
            head_dim=64,
            vocab_size=49_152,
        ),
        "llama-3.2-1b": ModelShape(
            num_layers=16,
            hidden_size=2048,
            intermediate_size=8192,
            num_heads=32,
            num_kv_heads=8,
            head_dim=64,
            vocab_size=128_256,
        ),
        "llama-3.1-8b": ModelShape(
            num_layers=32,
            hidden_size=4096,
            intermediate_size=14_336,
            num_heads=32,
            num_kv_heads=8,
            head_dim=128,
            vocab_size=128_256,
        ),
    }
)
