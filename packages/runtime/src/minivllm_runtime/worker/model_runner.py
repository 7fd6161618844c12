"""Executes the steps of the scheduler on the device."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from minivllm_runtime.attention.step_attention import AttentionBackend, StepAttention
from minivllm_runtime.device_state.request_states import RequestStates
from minivllm_runtime.device_state.staging import HostCopy, host_tensor, upload
from minivllm_runtime.errors import InvalidParameter, RequestFailed
from minivllm_runtime.messages import EngineRequest, TokenLogprobs
from minivllm_runtime.sampling.grammar_masks import GrammarState
from minivllm_runtime.sampling.prompt_scorer import PromptScorer, PromptScores
from minivllm_runtime.sampling.step_sampler import Sampled, StepSampler, TokenScores
from minivllm_runtime.worker.cuda_graphs import GraphOutput, StepGraphs
from minivllm_runtime.worker.input_batch import InputBatch
from minivllm_runtime.worker.kv_cache import KVCacheTensors
from minivllm_runtime.worker.step_columns import StepColumns
from minivllm_scheduler import ScheduledRequest, SchedulerOutput, StepResult

_PROBE = "probe"
_WARM_UP_PROMPTS = (2, 300)
"""Tokens: one prompt for each tile size of the attention kernels."""


class Model(Protocol):
    """What the runner asks of a model; `Decoder` is one, a scripted model of a test is another."""

    def __call__(
        self, input_ids: Tensor, positions: Tensor, attention: StepAttention, wanted: Tensor | None
    ) -> Tensor:
        """Final hidden states [S, H] of the wanted ones [S] of the step's tokens [T]; None wants all."""
        ...

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """Logits [S, V] from hidden states [S, H]."""
        ...


class _InFlight(NamedTuple):
    step_id: int
    ids: HostCopy
    scores: TokenScores | None
    grammars: tuple[tuple[int, GrammarState], ...]
    prompt_scores: tuple[PromptScores, ...]


class ModelRunner:
    """Keeps the device's state and turns each SchedulerOutput into sampled ids; see scheduler.Executor.

    `num_sampled_ids` is the number of ids that may be sampled: rows of a padded vocabulary beyond it never are.

    Attributes:
        logprobs: Of the tokens in the last result, by request id; of requests that want them only.
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
        self._sampler = StepSampler(states, num_sampled_ids)
        self._prompt_scorer = PromptScorer(model.compute_logits, num_sampled_ids)
        self.logprobs: Mapping[str, TokenLogprobs] = {}
        self._block_size = kv_cache.block_size
        self._requests: dict[str, EngineRequest] = {}
        self._in_flight: deque[_InFlight] = deque()
        self._graphs = StepGraphs(self._run_and_sample, states, self._block_size)
        states.pad_with(kv_cache.padding_block)

    @torch.inference_mode()
    def warm_up(self, max_num_batched_tokens: int) -> None:
        """Capture steps as graphs, so that none has to be launched kernel by kernel, and none compiles; CUDA only."""
        states = self._states
        for length in _WARM_UP_PROMPTS:
            num_tokens = min(length, states.token_ids.shape[1])
            probe = RequestStates(1, num_tokens, self._block_size, states.token_ids.device)
            logits = self._run_probe(probe, num_tokens)
        self._sampler.warm_up(logits)
        self._graphs.capture(states.padding_slot, max_num_batched_tokens)
        torch.cuda.synchronize()

    def add_request(self, request: EngineRequest, grammar: GrammarState | None = None) -> None:
        """Keep the sampling parameters of a request that may be scheduled from now on."""
        self._requests[request.request_id] = request
        self._sampler.add_request(request, grammar)
        self._prompt_scorer.add_request(request)

    def remove_request(self, request_id: str) -> EngineRequest:
        """Forget and return a request that ended; its device state goes when a later step releases it."""
        self._sampler.remove_request(request_id)
        self._prompt_scorer.remove_request(request_id)
        return self._requests.pop(request_id)

    @torch.inference_mode()
    def launch(self, output: SchedulerOutput) -> None:
        """Start a step. Sampled ids stay on the device, where the next step finds them."""
        rows = output.rows
        columns = StepColumns.of(rows)
        self._apply_changes(output, columns)
        scores_prompts = self._prompt_scorer.has_work(rows)
        replayed = None if scores_prompts else self._graphs.replay(columns)
        prompt_scores: tuple[PromptScores, ...] = ()
        if replayed is None:
            batch = InputBatch.build(rows, self._states, self._block_size)
            if scores_prompts:
                hidden = self._hidden(batch, None)
                prompt_scores = self._prompt_scorer.score(rows, hidden)
                hidden = hidden[batch.sampling_tokens]
            else:
                hidden = self._hidden(batch, batch.sampling_tokens)
            sampled = self._sample(batch, hidden, rows)
        else:
            sampled = self._sample_replayed(rows, columns, replayed)
        self._in_flight.append(
            _InFlight(output.step_id, HostCopy(sampled.ids), sampled.scores, sampled.grammars, prompt_scores)
        )

    def result(self) -> StepResult:
        """Wait for the oldest step in flight and return its sampled ids."""
        step = self._in_flight.popleft()
        ids = step.ids.wait()
        self.logprobs = {} if step.scores is None else step.scores.wait()
        self._prompt_scorer.arrive(step.prompt_scores)
        for index, grammar in step.grammars:
            grammar.advance(ids[index])
        return StepResult(step.step_id, tuple(zip(ids, strict=True)))

    def grammar_errors(self) -> dict[str, InvalidParameter | RequestFailed]:
        """See StepSampler.grammar_errors."""
        return self._sampler.grammar_errors()

    @property
    def has_logprobs(self) -> bool:
        """Whether any log-probability may be waiting to be fetched."""
        return bool(self.logprobs) or self._prompt_scorer.has_prompts

    def take_prompt_logprobs(self, request_id: str) -> tuple[TokenLogprobs, ...] | None:
        """See PromptScorer.take."""
        return self._prompt_scorer.take(request_id)

    def reset(self) -> None:
        """Forget the steps in flight, after one of them failed, perhaps before its changes were sent."""
        self._in_flight.clear()
        self._states.discard_changes()

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
        batch = InputBatch.build([row], probe, self._block_size)
        return self._model.compute_logits(self._hidden(batch, batch.sampling_tokens))

    def _apply_changes(self, output: SchedulerOutput, columns: StepColumns) -> None:
        states = self._states
        for request_id in output.released:
            states.release(request_id)
        new_blocks: list[int] = []
        for admitted in output.admitted:
            states.admit(
                admitted.request_id, admitted.token_ids, admitted.num_prompt_tokens, admitted.block_ids
            )
            if states.token_ids.is_cuda:
                states.set_sampling(self._requests[admitted.request_id])
            new_blocks.extend(admitted.block_ids[admitted.num_cached_tokens // self._block_size :])
        if any(columns.new_block_ids):
            for request_id, block_ids in zip(columns.request_ids, columns.new_block_ids, strict=True):
                if block_ids:
                    states.append_blocks(request_id, block_ids)
                    new_blocks.extend(block_ids)
        states.flush()
        if new_blocks and self._backend.reads_unwritten_slots:
            self._kv_cache.clear(new_blocks)

    def _hidden(self, batch: InputBatch, wanted: Tensor | None) -> Tensor:
        """Final hidden states [S, H] of the wanted tokens, None of all."""
        return self._model(batch.input_ids, batch.positions, self._backend.plan(batch.layout), wanted)

    def _sample(self, batch: InputBatch, hidden: Tensor, rows: Sequence[ScheduledRequest]) -> Sampled:
        """Sample from hidden [S, H] of the rows that do; the ids are also the next step's input in the states."""
        sampling = [row for row in rows if row.samples]
        if not sampling:
            return Sampled(hidden.new_empty(0, dtype=torch.int64))
        logits = self._model.compute_logits(hidden)
        return self._sampler.sample(logits, sampling, batch.next_slots, batch.next_positions)

    def _run_and_sample(self, batch: InputBatch) -> GraphOutput:
        """The part of a step that a graph holds. Ids drawn of the raw logits are right for most requests."""
        logits = self._model.compute_logits(self._hidden(batch, batch.sampling_tokens))
        return GraphOutput(logits, self._sampler.draw(logits, batch.next_slots, batch.next_positions))

    def _sample_replayed(
        self, rows: Sequence[ScheduledRequest], columns: StepColumns, output: GraphOutput
    ) -> Sampled:
        """What rows of a replayed graph sample; if any row wants more than a draw of its raw logits, all over again."""
        logits, ids = output
        request_ids: Sequence[str] = columns.request_ids
        chosen = None
        if not all(columns.samples):
            indices = [index for index, samples in enumerate(columns.samples) if samples]
            chosen = upload(torch.tensor(indices, dtype=torch.int64), ids.device)
            rows = [rows[index] for index in indices]
            request_ids = [row.request_id for row in rows]
            ids = ids[chosen]
        if self._sampler.is_complete(request_ids):
            return Sampled(ids)
        if chosen is not None:  # not earlier: it copies the logits of every row
            logits = logits[chosen]
        row_slots = self._states.slots(request_ids)
        places = host_tensor((row_slots, [row.start + row.num_tokens for row in rows]))
        slots, positions = upload(places, ids.device).unbind(0)
        return self._sampler.sample(logits, rows, slots, positions)
