"""Hugging Face's continuous batching, the engine of `generate_batch`: paged KV cache, requests come and go."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import torch
from transformers import ContinuousBatchingConfig
from transformers.generation.continuous_batching.utils import WorkloadHints

from minivllm_bench.engines.hf import HfEngine, generation_config
from minivllm_bench.engines.interface import EngineSettings, TimedRun
from minivllm_bench.errors import EngineFailed
from minivllm_bench.workloads import BenchRequest

BLOCK_SIZE = 256
"""Tokens of a KV block, its default in every release so far; the option's name changed between 5.17 and 5.24."""
MAX_BATCH_TOKENS = 4096
NO_END = -1
POLL_S = 1.0


class _Size(NamedTuple):
    """What a manager is built for; lengths in blocks, so that runs of one workload find the same one."""

    num_requests: int
    prompt_blocks: int
    output_blocks: int

    @classmethod
    def of(cls, requests: Sequence[BenchRequest]) -> Self:
        longest_prompt = max(len(request.prompt_token_ids) for request in requests)
        longest_output = max(request.output_len for request in requests)
        return cls(
            len(requests), math.ceil(longest_prompt / BLOCK_SIZE), math.ceil(longest_output / BLOCK_SIZE)
        )


class HfContinuousEngine(HfEngine):
    """Its manager is built and warmed up for each workload, as `generate_batch` does, but outlives a run.

    The KV cache has room for all requests at once; prefix sharing is off.
    """

    def __init__(self, model: Any, tokenizer: Any, settings: EngineSettings) -> None:
        super().__init__(model, tokenizer, settings)
        self._generation_config = generation_config(settings.temperature)
        self._generation_config.eos_token_id = NO_END
        self._manager: Any = None
        self._size: _Size | None = None

    def run(self, requests: Sequence[BenchRequest]) -> TimedRun:
        """See `Engine.run`. Building and warming up a manager is not counted."""
        torch.set_num_threads(self._num_threads)
        self._prepare(_Size.of(requests))
        return super().run(requests)

    def close(self) -> None:
        """Stop the manager's thread, drop KV cache and weights."""
        self._stop()
        super().close()

    @torch.no_grad()  # inference mode would not reach the manager's thread in 5.17
    def _prepare(self, size: _Size) -> None:
        if size == self._size:
            return
        self._stop()
        try:
            self._manager = self._model.init_continuous_batching(
                self._generation_config,
                ContinuousBatchingConfig(
                    num_blocks=size.num_requests * (size.prompt_blocks + size.output_blocks),
                    max_batch_tokens=max(MAX_BATCH_TOKENS, size.num_requests),
                    allow_block_sharing=False,
                ),
                WorkloadHints(
                    max_prompt_length=size.prompt_blocks * BLOCK_SIZE,
                    max_generated_length=size.output_blocks * BLOCK_SIZE,
                    num_requests=size.num_requests,
                ),
            )
            self._manager.warmup()
        except (MemoryError, ValueError, RuntimeError) as error:
            raise EngineFailed(f"hf-cb cannot prepare for {size.num_requests} requests: {error}") from error
        self._manager.start()
        self._size = size

    def _generate(self, requests: Sequence[BenchRequest]) -> list[list[int]]:
        request_ids = [
            self._manager.add_request(
                list(request.prompt_token_ids), max_new_tokens=request.output_len, eos_token_id=NO_END
            )
            for request in requests
        ]
        rows: dict[str, list[int]] = {}
        while len(rows) < len(requests):
            result = self._manager.get_result(timeout=POLL_S)
            if result is None:
                if not self._manager.is_running():
                    raise EngineFailed("hf-cb: the generation thread ended")
            elif result.error is not None:
                raise EngineFailed(f"hf-cb: {result.error}")
            elif result.is_finished():
                rows[result.request_id] = list(result.generated_tokens)
        return [rows[request_id] for request_id in request_ids]

    def _stop(self) -> None:
        if self._manager is not None:
            self._manager.stop(block=True)
            self._manager.destroy()
            self._manager = self._size = None
