"""Executes the steps of the scheduler on the device."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from minivllm_runtime.attention.step_attention import AttentionBackend, StepAttention
from minivllm_runtime.engine.messages import EngineRequest
from minivllm_runtime.sampling.request_sampling import RequestSampling
from minivllm_runtime.sampling.sampler import sample
from minivllm_runtime.sampling.sampling_batch import SamplingBatch
from minivllm_runtime.sampling.upload import upload
from minivllm_runtime.worker.cuda_graphs import DecodeGraphs, DecodeOutput, padded_sizes
from minivllm_runtime.worker.input_batch import InputBatch
from minivllm_runtime.worker.kv_cache import KVCacheTensors
from minivllm_runtime.worker.request_states import RequestStates
from minivllm_runtime.worker.staging import HostCopy
from minivllm_scheduler import ScheduledRequest, SchedulerOutput, StepResult

_PROBE = "probe"
_WARM_UP_PROMPTS = (2, 300)
"""Tokens: one prompt for each tile size of the attention kernels."""


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
    sampled: HostCopy


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
        self._graphs = DecodeGraphs(self._decode, states, self._block_size)
        states.pad_with(kv_cache.padding_block)

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Compile what prompts need and capture the decode steps, so that no request has to wait for it; CUDA only."""
        states = self._states
        for num_tokens in _WARM_UP_PROMPTS:
            probe = RequestStates(1, num_tokens, self._block_size, states.token_ids.device)
            self._run_probe(probe, num_tokens)
        self._graphs.capture(padded_sizes(states.padding_slot))
        torch.cuda.synchronize()

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
        decoded = self._graphs.replay(output.rows)
        sampled = (
            self._forward(output.rows) if decoded is None else self._sample_decoded(output.rows, decoded)
        )
        self._in_flight.append(_InFlight(output.step_id, HostCopy(sampled)))

    def result(self) -> StepResult:
        """Wait for the oldest step in flight and return its sampled ids."""
        step_id, sampled = self._in_flight.popleft()
        return StepResult(step_id, tuple(zip(sampled.wait(), strict=True)))

    def reset(self) -> None:
        """Forget the steps in flight, after one of them failed."""
        self._in_flight.clear()

    @torch.inference_mode()
    def self_test(self) -> None:
        """Run one token on the padding block; raises whatever keeps the device or the model from working."""
        probe = RequestStates(1, self._block_size, self._block_size, self._states.token_ids.device)
        self._run_probe(probe, num_tokens=1).argmax(dim=-1).tolist()

    def _run_probe(self, probe: RequestStates, num_tokens: int) -> Tensor:
        """Logits of one prompt whose KV goes to the padding block."""
        num_blocks = probe.block_tables.shape[1]
        probe.admit(_PROBE, [0] * num_tokens, num_tokens, [self._kv_cache.padding_block] * num_blocks)
        probe.flush()
        row = ScheduledRequest(_PROBE, 0, num_tokens, (), samples=True)
        return self._logits(InputBatch.build([row], probe, self._block_size))

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
        states.flush()
        if new_blocks and self._backend.reads_unwritten_slots:
            self._kv_cache.clear(new_blocks)

    def _forward(self, rows: Sequence[ScheduledRequest]) -> Tensor:
        """Run model and sampler on any rows: [S] int64, also written to the states as the next step's input."""
        batch = InputBatch.build(rows, self._states, self._block_size)
        sampling = [row for row in rows if row.samples]
        if not sampling:
            hidden = self._model(batch.input_ids, batch.positions, self._backend.plan(batch.layout))
            return hidden.new_empty(0, dtype=torch.int64)
        sampled = sample(self._logits(batch), self._sampling_batch(sampling))
        self._states.token_ids[batch.next_slots, batch.next_positions] = sampled
        return sampled

    def _logits(self, batch: InputBatch) -> Tensor:
        """[S, V] of the rows that sample, without ids that must not be sampled."""
        hidden = self._model(batch.input_ids, batch.positions, self._backend.plan(batch.layout))
        if batch.sampling_tokens is not None:
            hidden = hidden[batch.sampling_tokens]
        return self._model.compute_logits(hidden)[:, : self._num_sampled_ids]

    def _decode(self, batch: InputBatch) -> DecodeOutput:
        """The part of a decode step that a graph holds. The most probable ids are right for most requests."""
        logits = self._logits(batch)
        sampled = logits.max(dim=-1).indices
        self._states.token_ids[batch.next_slots, batch.next_positions] = sampled
        return DecodeOutput(logits, sampled)

    def _sample_decoded(self, rows: Sequence[ScheduledRequest], output: DecodeOutput) -> Tensor:
        """What rows of a replayed graph sample: [S] int64. Where that is not the most probable id, replace it."""
        indices = [index for index, row in enumerate(rows) if row.samples]
        logits, sampled = output
        if len(indices) < len(rows):
            chosen = upload(torch.tensor(indices, dtype=torch.int64), sampled.device)
            rows = [rows[index] for index in indices]
            logits, sampled = logits[chosen], sampled[chosen]
        if all(self._requests[row.request_id].is_plain for row in rows):
            return sampled
        sampled = sample(logits, self._sampling_batch(rows))
        places = torch.tensor([[self._states.slot(row.request_id), row.start + 1] for row in rows])
        slots, positions = upload(places, sampled.device).unbind(1)
        self._states.token_ids[slots, positions] = sampled
        return sampled

    def _sampling_batch(self, rows: Sequence[ScheduledRequest]) -> SamplingBatch:
        return SamplingBatch.build(
            [self._requests[row.request_id] for row in rows],
            [row.start + row.num_tokens for row in rows],
            self._states,
            self._num_sampled_ids,
        )
