import torch

from minivllm_runtime.machine import read_devices


def test_the_cpu_comes_first_then_every_gpu():
    cpu, *gpus = read_devices()
    assert cpu.kind == "cpu"
    assert cpu.name
    assert [gpu.kind for gpu in gpus] == [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    assert all(0 < device.free_bytes <= device.total_bytes for device in (cpu, *gpus))
