"""minivllm's offline facade, with default settings except that the prefix cache is off."""

import time
from collections.abc import Sequence
from typing import Self

import torch

from minivllm_bench.engines.interface import Completion, EngineSettings, TimedRun
from minivllm_bench.errors import EngineFailed
from minivllm_bench.workloads import BenchRequest
from minivllm_runtime import LLM, SamplingParams
from minivllm_runtime.errors import MinivllmError


class MinivllmEngine:
    """`minivllm_runtime.LLM` in this process."""

    def __init__(self, llm: LLM, num_threads: int) -> None:
        self._llm = llm
        self._num_threads = num_threads

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
            )
        except MinivllmError as error:
            raise EngineFailed(f"minivllm cannot load {settings.model}: {error}") from error
        return cls(llm, settings.num_threads)

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
                    SamplingParams(temperature=0.0, max_tokens=request.output_len, ignore_eos=True)
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
