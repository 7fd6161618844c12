"""The least time that a workload can take on a device: what its copy and matrix product rates allow, nothing lost.

All prompts are one step, then each step makes a token of every request that still needs one. No engine reaches this:
it counts neither launches nor sampling nor the host.
"""

from collections.abc import Sequence
from typing import Any

from minivllm_bench.workloads import BenchRequest
from minivllm_scheduler.simulation import DeviceSheet, RooflineCost, StepLoad

_COPY_BYTES = 2**32
_PRODUCT_SIZE = 8192
_WARM_UPS, _RUNS = 3, 10


def least_seconds(requests: Sequence[BenchRequest], cost: RooflineCost) -> float:
    """Seconds of the prompts' step and of the steps that follow it."""
    prompt_lens = [len(request.prompt_token_ids) for request in requests]
    seconds = cost.step_s(
        StepLoad(
            num_rows=len(requests),
            num_tokens=sum(prompt_lens),
            num_samples=len(requests),
            num_context_tokens=sum(prompt_lens),
            num_attention_pairs=sum(length * (length + 1) // 2 for length in prompt_lens),
        )
    )
    for step in range(1, max(request.output_len for request in requests)):
        contexts = [len(each.prompt_token_ids) + step for each in requests if each.output_len > step]
        rows = len(contexts)
        seconds += cost.step_s(StepLoad(rows, rows, rows, sum(contexts), sum(contexts)))
    return seconds


def measure_ceilings() -> DeviceSheet:
    """Rates of a large copy (bytes read and written) and of a large bfloat16 product on the current CUDA device."""
    import torch

    source = torch.empty(_COPY_BYTES, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    a, b = torch.randn(2, _PRODUCT_SIZE, _PRODUCT_SIZE, dtype=torch.bfloat16, device="cuda")

    def seconds_of(run: Any) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        for _ in range(_WARM_UPS):
            run()
        begin.record()
        for _ in range(_RUNS):
            run()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1000 / _RUNS

    return DeviceSheet(
        flops_per_s=2 * _PRODUCT_SIZE**3 / seconds_of(lambda: a @ b),
        bytes_per_s=2 * _COPY_BYTES / seconds_of(lambda: target.copy_(source)),
    )
