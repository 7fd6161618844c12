"""minivllm's offline facade, with default settings except that the prefix cache is off."""

import time
from collections.abc import Sequence
from typing import Self

import torch

from minivllm_bench.engines.interface import Completion, Device, EngineSettings, TimedRun
from minivllm_bench.errors import EngineFailed
from minivllm_bench.workloads import BenchRequest
from minivllm_runtime import LLM, SamplingParams
from minivllm_runtime.errors import MinivllmError


class MinivllmEngine:
    """`minivllm_runtime.LLM` in this process."""

    def __init__(self, llm: LLM, settings: EngineSettings) -> None:
        self._llm = llm
        self._num_threads = settings.num_threads
        self._temperature = settings.temperature

    @classmethod
    def load(cls, settings: EngineSettings) -> Self:
        """Build the engine.

        Raises:
            EngineFailed: the model cannot be served.
        """
        try:
            llm = LLM(
                settings.model,
                load_format="dummy" if settings.dummy_weights else "auto",
                dtype=settings.dtype,
                device=settings.device,
                num_threads=settings.num_threads,
                enable_prefix_caching=False,
                gpu_memory_utilization=min(1.0, settings.gpu_memory_share + _used_share(settings.device)),
            )
        except MinivllmError as error:
            raise EngineFailed(f"minivllm cannot load {settings.model}: {error}") from error
        return cls(llm, settings)

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding."""
        return self._llm.model_config.vocab_size

    def run(self, requests: Sequence[BenchRequest]) -> TimedRun:
        """See `Engine.run`."""
        torch.set_num_threads(self._num_threads)
        started = time.perf_counter()
        try:
            outputs = self._llm.generate(
                [request.prompt_token_ids for request in requests],
                [
                    SamplingParams(
                        temperature=self._temperature, max_tokens=request.output_len, ignore_eos=True
                    )
                    for request in requests
                ],
                use_tqdm=False,
            )
        except MinivllmError as error:
            raise EngineFailed(f"minivllm: {error}") from error
        seconds = time.perf_counter() - started
        choices = (output.outputs[0] for output in outputs)
        return TimedRun(tuple(Completion(choice.token_ids, choice.text) for choice in choices), seconds)

    def close(self) -> None:
        """Drop weights and KV cache."""
        del self._llm


def _used_share(device: Device) -> float:
    """Share of the GPU's memory that others hold, which `gpu_memory_utilization` counts as well."""
    if device != "cuda":
        return 0.0
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    return 1 - free_bytes / total_bytes
