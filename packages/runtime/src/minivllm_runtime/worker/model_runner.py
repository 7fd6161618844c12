"""Executes the steps of the scheduler on the device."""

from collections import deque
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from minivllm_runtime.attention.step_attention import AttentionBackend, StepAttention
from minivllm_runtime.engine.messages import EngineRequest
from minivllm_runtime.sampling.request_sampling import RequestSampling
from minivllm_runtime.sampling.sampler import sample
from minivllm_runtime.sampling.sampling_batch import SamplingBatch
from minivllm_runtime.worker.input_batch import InputBatch
from minivllm_runtime.worker.kv_cache import KVCacheTensors
from minivllm_runtime.worker.request_states import RequestStates
from minivllm_scheduler import ScheduledRequest, SchedulerOutput, StepResult

_SELF_TEST_REQUEST = "self-test"


class Model(Protocol):
    """What the runner asks of a model; `Decoder` is one, a scripted model of a test is another."""

    def __call__(self, input_ids: Tensor, positions: Tensor, attention: StepAttention) -> Tensor:
        """Final hidden states [T, H] of the step's tokens."""
        ...

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """Logits [S, V] from hidden states [S, H]."""
        ...


class _InFlight(NamedTuple):
    step_id: int
    sampled: Tensor


class ModelRunner:
    """Keeps the device's state and turns each SchedulerOutput into sampled ids; see scheduler.Executor.

    `num_sampled_ids` is the number of ids that may be sampled: rows of a padded vocabulary beyond it never are.
    """

    def __init__(
        self,
        model: Model,
        backend: AttentionBackend,
        kv_cache: KVCacheTensors,
        states: RequestStates,
        *,
        num_sampled_ids: int,
    ) -> None:
        self._model = model
        self._backend = backend
        self._kv_cache = kv_cache
        self._states = states
        self._num_sampled_ids = num_sampled_ids
        self._block_size = kv_cache.block_size
        self._requests: dict[str, RequestSampling] = {}
        self._in_flight: deque[_InFlight] = deque()

    def add_request(self, request: EngineRequest) -> None:
        """Keep the sampling parameters of a request that may be scheduled from now on."""
        self._requests[request.request_id] = RequestSampling.prepare(
            request, self._num_sampled_ids, self._states.token_ids.device
        )

    def remove_request(self, request_id: str) -> None:
        """Forget a request that ended; its device state goes when a later step releases it."""
        del self._requests[request_id]

    @torch.inference_mode()
    def launch(self, output: SchedulerOutput) -> None:
        """Start a step. Sampled ids stay on the device, where the next step finds them."""
        self._apply_changes(output)
        batch = InputBatch.build(output.rows, self._states, self._block_size)
        sampled = self._forward(batch)
        self._in_flight.append(_InFlight(output.step_id, sampled))

    def result(self) -> StepResult:
        """Wait for the oldest step in flight and return its sampled ids."""
        step_id, sampled = self._in_flight.popleft()
        return StepResult(step_id, tuple((token_id,) for token_id in sampled.tolist()))

    def reset(self) -> None:
        """Forget the steps in flight, after one of them failed."""
        self._in_flight.clear()

    @torch.inference_mode()
    def self_test(self) -> None:
        """Run one token on the padding block; raises whatever keeps the device or the model from working."""
        probe = RequestStates(1, self._block_size, self._block_size, self._states.token_ids.device)
        probe.admit(_SELF_TEST_REQUEST, [0], 1, [self._kv_cache.padding_block])
        row = ScheduledRequest(_SELF_TEST_REQUEST, 0, 1, (), samples=True)
        batch = InputBatch.build([row], probe, self._block_size)
        hidden = self._model(batch.input_ids, batch.positions, self._backend.plan(batch.layout))
        self._model.compute_logits(hidden[batch.sampling_tokens]).argmax(dim=-1).tolist()

    def _apply_changes(self, output: SchedulerOutput) -> None:
        states = self._states
        for request_id in output.released:
            states.release(request_id)
        new_blocks: list[int] = []
        for admitted in output.admitted:
            states.admit(
                admitted.request_id, admitted.token_ids, admitted.num_prompt_tokens, admitted.block_ids
            )
            new_blocks.extend(admitted.block_ids[admitted.num_cached_tokens // self._block_size :])
        for row in output.rows:
            if row.new_block_ids:
                states.append_blocks(row.request_id, row.new_block_ids)
                new_blocks.extend(row.new_block_ids)
        if new_blocks:
            self._kv_cache.clear(new_blocks)

    def _forward(self, batch: InputBatch) -> Tensor:
        """Run model and sampler: [S] int64, also written to the states as the next step's input."""
        hidden = self._model(batch.input_ids, batch.positions, self._backend.plan(batch.layout))
        if not batch.sampling_rows:
            return hidden.new_empty(0, dtype=torch.int64)
        logits = self._model.compute_logits(hidden[batch.sampling_tokens])[:, : self._num_sampled_ids]
        sampled = sample(logits, self._sampling_batch(batch))
        self._states.token_ids[batch.next_slots, batch.next_positions] = sampled
        return sampled

    def _sampling_batch(self, batch: InputBatch) -> SamplingBatch:
        rows = batch.sampling_rows
        return SamplingBatch.build(
            [self._requests[row.request_id] for row in rows],
            [row.start + row.num_tokens for row in rows],
            self._states,
            self._num_sampled_ids,
        )
