"""Offline generation: many prompts in, all their outputs back."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from tqdm import tqdm

from minivllm_runtime.config import EngineConfig
from minivllm_runtime.engine.builder import BuiltEngine, Progress, build_engine
from minivllm_runtime.engine.collect import collect
from minivllm_runtime.engine.input_processor import InputProcessor
from minivllm_runtime.engine.output_joiner import OutputJoiner
from minivllm_runtime.engine.output_processor import OutputProcessor, SubmissionUpdate
from minivllm_runtime.errors import EngineDead, InvalidParameter, RequestFailed
from minivllm_runtime.messages import (
    AbortRequest,
    Accepted,
    AddRequests,
    EngineRequest,
    EngineStats,
    Refused,
)
from minivllm_runtime.outputs import ChoiceDelta, RequestOutput
from minivllm_runtime.sampling_params import SamplingParams

Prompt = str | Sequence[int]


@dataclass(frozen=True, slots=True)
class _Submission:
    """One prompt with its choices."""

    name: str
    prompt: str | None
    params: SamplingParams
    requests: tuple[EngineRequest, ...]


class LLM:
    """A model and its engine, in this process.

    Args:
        model: A bundled name ("smollm2"), a local folder, a `.gguf` file or a hub id.
        settings: Any field of EngineConfig: dtype, device, num_blocks, block_size, max_num_seqs,
            max_num_batched_tokens, max_model_len, enable_prefix_caching, ...

    Raises:
        ModelLoadError: the model is missing, damaged or of an unsupported kind.
        InvalidParameter: a setting is out of range or does not fit the model.

    Example:
        >>> llm = LLM("smollm2")
        >>> llm.generate("The capital of France is", SamplingParams(temperature=0))[0].outputs[0].text
    """

    def __init__(self, model: str = "smollm2", *, progress: Progress | None = None, **settings: Any) -> None:
        unknown = settings.keys() - EngineConfig.__dataclass_fields__.keys()
        if unknown:
            name = min(unknown)
            raise InvalidParameter(name, f"unknown setting {name!r}")
        self._bind(build_engine(EngineConfig(model=model, **settings), progress=progress))

    @classmethod
    def from_engine(cls, built: BuiltEngine) -> "LLM":
        """Wrap an engine that was built otherwise: to record what its scheduler does, or around another model."""
        llm = cls.__new__(cls)
        llm._bind(built)
        return llm

    def _bind(self, built: BuiltEngine) -> None:
        self.model_config = built.model_config
        self.tokenizer = built.tokenizer
        self.dtype, self.device = built.dtype, built.device
        self.num_blocks, self.block_size = built.num_blocks, built.block_size
        self.max_model_len = built.max_model_len
        self._core, self._grammars = built.core, built.grammars
        self._input = InputProcessor(built.tokenizer, built.model_config, built.max_model_len)
        self._output = OutputProcessor(built.tokenizer)
        self._joiner = OutputJoiner()
        self._ids = count()

    def stats(self) -> EngineStats:
        """Gauges and counters of the engine."""
        return self._core.stats()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Generate for one prompt or many; they run together, in as large batches as the engine's limits allow.

        Args:
            prompts: Text or token ids; one, or a list of them.
            sampling_params: One for all prompts, or one per prompt; None samples 16 tokens at temperature 1.
            use_tqdm: Show a progress bar.

        Returns:
            One output per prompt, in order.

        Raises:
            InvalidParameter: a prompt or a parameter is out of range; nothing is generated then. Or an output has come
                to a part of its json_schema that nothing satisfies; the rest is aborted.
            RequestFailed: the engine failed on one of them; the rest is aborted.
            EngineDead: the engine stopped.
        """
        listed = _as_list(prompts)
        params = _one_per_prompt(sampling_params, len(listed))
        submissions = [self._prepare(prompt, each) for prompt, each in zip(listed, params, strict=True)]
        with tqdm(total=len(submissions), desc="generating", unit="prompt", disable=not use_tqdm) as bar:
            outputs = self._run(submissions, bar)
        return [outputs[submission.name] for submission in submissions]

    def _prepare(self, prompt: Prompt, params: SamplingParams) -> _Submission:
        name = str(next(self._ids))
        text = prompt if isinstance(prompt, str) else None
        token_ids = self._input.encode(prompt) if isinstance(prompt, str) else prompt
        if params.n > self._core.max_num_requests:
            limit = self._core.max_num_requests
            raise InvalidParameter(
                "n", f"n ({params.n}) is above the limit of {limit} requests, running and waiting"
            )
        requests = self._input.make_requests(name, [token_ids], params)
        if requests[0].json_schema is not None:
            self._grammars.compile(requests[0].json_schema)
        return _Submission(name, text, params, requests)

    def _run(self, submissions: Sequence[_Submission], bar: "tqdm[None]") -> dict[str, RequestOutput]:
        """Step the engine until every submission is finished; the output of each."""
        unfinished = {submission.name: submission for submission in submissions}
        deltas: dict[str, list[ChoiceDelta]] = {name: [] for name in unfinished}
        outputs: dict[str, RequestOutput] = {}
        waiting = deque(submissions)
        # The device waits for the first step: what that cannot take anyway is handed over while it runs.
        is_in_order = len({submission.params.priority for submission in submissions}) == 1
        most_tokens = self._core.max_num_batched_tokens if is_in_order else math.inf
        try:
            while unfinished:
                self._feed(waiting, most_tokens)
                most_tokens = math.inf
                for update in self._step():
                    name = update.submission_id
                    deltas[name] += update.deltas
                    if update.error is not None:
                        raise update.error
                    if update.is_finished:  # joined now, while the device computes for others
                        done = unfinished.pop(name)
                        outputs[name] = collect(name, done.requests, done.prompt, deltas.pop(name))
                        bar.update()
        finally:
            for name in unfinished:
                self._abort(self._output.abort(name))
        return outputs

    def _feed(self, waiting: deque[_Submission], most_tokens: float) -> None:
        """Hand over as many of the next submissions as the engine's queue takes, until their prompts fill a step."""
        room = self._core.queue_room
        while waiting and len(waiting[0].requests) <= room and most_tokens > 0:
            submission = waiting.popleft()
            room -= len(submission.requests)
            most_tokens -= len(submission.requests[0].prompt_token_ids)
            self._output.register(submission.name, submission.requests, submission.params)
            if not submission.params.stop:
                self._joiner.hold(request.request_id for request in submission.requests)
            _raise_if_refused(self._core.execute([AddRequests(submission.name, submission.requests)]))

    def _step(self) -> tuple[SubmissionUpdate, ...]:
        """Run one step of the engine and abort what only the engine still runs."""
        processed = self._output.process(self._joiner.push(self._core.step()))
        self._abort(processed.aborts)
        _raise_if_refused(self._core.take_answers())
        if self._core.fatal_error is not None:
            raise EngineDead(self._core.fatal_error)
        return processed.updates

    def _abort(self, request_ids: Sequence[str]) -> None:
        self._joiner.forget(request_ids)
        self._core.execute([AbortRequest(request_id) for request_id in request_ids])


def _raise_if_refused(answers: Sequence[Accepted | Refused]) -> None:
    for answer in answers:
        if isinstance(answer, Refused):
            raise RequestFailed(answer.message)


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str) or (prompts and isinstance(prompts[0], int)):
        return [prompts]  # type: ignore[list-item]
    return list(prompts)  # type: ignore[arg-type]


def _one_per_prompt(
    params: SamplingParams | Sequence[SamplingParams] | None, num_prompts: int
) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * num_prompts
    if len(params) != num_prompts:
        raise InvalidParameter(
            "sampling_params",
            f"{len(params)} sampling parameters for {num_prompts} prompts; give one, or one each",
        )
    return list(params)
