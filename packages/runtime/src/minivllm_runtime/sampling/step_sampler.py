"""Sampling as the model runner sees it: rows of a step and their logits in, ids and log-probabilities out."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from minivllm_runtime.device_state.request_states import RequestStates
from minivllm_runtime.device_state.staging import HostCopy, upload
from minivllm_runtime.errors import InvalidParameter, RequestFailed
from minivllm_runtime.messages import EngineRequest, TokenLogprobs
from minivllm_runtime.sampling.grammar_masks import GrammarState
from minivllm_runtime.sampling.logprobs import logprob_table, read_table
from minivllm_runtime.sampling.request_sampling import RequestSampling
from minivllm_runtime.sampling.sampler import adjust, sample
from minivllm_runtime.sampling.sampling_batch import SamplingBatch
from minivllm_scheduler import ScheduledRequest


class TokenScores(NamedTuple):
    """Log-probabilities of the tokens of one step, on their way to the host: the requests that want them, in order."""

    requests: tuple[EngineRequest, ...]
    table: HostCopy

    def wait(self) -> Mapping[str, TokenLogprobs]:
        """The log-probabilities by request id, once they have arrived."""
        scores = read_table(self.table.wait(), [request.logprobs or 0 for request in self.requests])
        return {request.request_id: score for request, score in zip(self.requests, scores, strict=True)}


class Sampled(NamedTuple):
    """What the rows of one step sampled.

    Attributes:
        ids: [S] int64, on the device.
        scores: None if no row wants any.
        grammars: Of the rows that have one, each with the index of its row.
    """

    ids: Tensor
    scores: TokenScores | None = None
    grammars: tuple[tuple[int, GrammarState], ...] = ()


class StepSampler:
    """Samples the rows of steps, and keeps what that takes for each request.

    Args:
        states: Holds the ids of the requests.
        num_ids: Number of ids that may be sampled: rows of a padded vocabulary beyond it never are.
    """

    def __init__(self, states: RequestStates, num_ids: int) -> None:
        self._states = states
        self._num_ids = num_ids
        self._requests: dict[str, RequestSampling] = {}
        self._grammars: dict[str, GrammarState] = {}
        self._wanting_more: set[str] = set()

    def add_request(self, request: EngineRequest, grammar: GrammarState | None = None) -> None:
        """Prepare for a request that may be scheduled from now on; it never runs ahead if it has a grammar."""
        if grammar is not None:
            self._grammars[request.request_id] = grammar
        prepared = RequestSampling.prepare(request, self._num_ids, self._states.token_ids.device)
        self._requests[request.request_id] = prepared
        if prepared.is_adjusted or request.logprobs is not None:
            self._wanting_more.add(request.request_id)

    def remove_request(self, request_id: str) -> None:
        """Forget a request that ended."""
        del self._requests[request_id]
        self._wanting_more.discard(request_id)
        self._grammars.pop(request_id, None)

    def grammar_errors(self) -> dict[str, InvalidParameter | RequestFailed]:
        """What is wrong with grammars that failed, by the request whose output they were to shape."""
        return {
            request_id: grammar.error
            for request_id, grammar in self._grammars.items()
            if grammar.error is not None
        }

    def is_complete(self, request_ids: Sequence[str]) -> bool:
        """Whether an id drawn of the raw logits is all that these requests want of a step."""
        return self._wanting_more.isdisjoint(request_ids)

    def sample(
        self, logits: Tensor, rows: Sequence[ScheduledRequest], slots: Tensor, positions: Tensor
    ) -> Sampled:
        """Sample one id for each of the rows, which all sample, and write it to the request states.

        Args:
            logits: [S, V], all that the model made, of any float dtype; may be overwritten.
            rows: [S] rows.
            slots: [S] int64, which rows of the states the ids go to.
            positions: [S] int64, where in these rows.
        """
        requests = [self._requests[row.request_id] for row in rows]
        grammars = self._grammars_of(rows)
        num_tokens = [row.start + row.num_tokens for row in rows]
        batch = SamplingBatch.build(requests, num_tokens, self._states, self._num_ids, grammars)
        scored = [index for index, each in enumerate(requests) if each.request.logprobs is not None]
        if not scored:
            return Sampled(self._draw(logits, batch, slots, positions), grammars=grammars)
        places = upload(torch.tensor(scored), logits.device)
        raw_logits = logits[places]  # a copy, before the sampler changes them
        ids = self._draw(logits, batch, slots, positions)
        wanting = tuple(requests[index].request for index in scored)
        num_top = max(request.logprobs or 0 for request in wanting)
        table = logprob_table(raw_logits, ids[places], num_top, self._num_ids)
        return Sampled(ids, TokenScores(wanting, HostCopy(table)), grammars)

    def warm_up(self, logits: Tensor) -> None:
        """Compile what draws ids outside of graphs, of logits as they are and of adjusted ones; CUDA only.

        Args:
            logits: [1, V], as the model made them.
        """
        # Adjusted logits of one row keep the stride of all that the model made, those of several do not.
        adjusted = (logits[:, : self._num_ids].float(), logits.new_zeros(2, self._num_ids).float())
        for each in (logits, *adjusted):
            slots = torch.full((len(each),), self._states.padding_slot, device=logits.device)
            self.draw(each, slots, torch.ones_like(slots))

    def draw(self, logits: Tensor, slots: Tensor, positions: Tensor) -> Tensor:
        """Draw ids on a CUDA device as the states say, and write them there; a graph may hold it.

        Args:
            logits: [S, V] of any float dtype.
            slots: [S] int64.
            positions: [S] int64 or int32.

        Returns:
            [S] int64.
        """
        # Imported here: a CPU needs no kernels.
        from minivllm_kernels.sample import sample as draw

        states = self._states
        return draw(logits[:, : self._num_ids], states.token_ids, slots, positions, states.sampling)

    def _draw(self, logits: Tensor, batch: SamplingBatch, slots: Tensor, positions: Tensor) -> Tensor:
        if logits.is_cuda:
            return self.draw(adjust(logits[:, : self._num_ids], batch), slots, positions)
        ids = sample(logits[:, : self._num_ids], batch)
        self._states.token_ids[slots, positions] = ids
        return ids

    def _grammars_of(self, rows: Sequence[ScheduledRequest]) -> tuple[tuple[int, GrammarState], ...]:
        if not self._grammars:
            return ()
        return tuple(
            (index, self._grammars[row.request_id])
            for index, row in enumerate(rows)
            if row.request_id in self._grammars
        )
