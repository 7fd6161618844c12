"""The engine for asyncio programs: an engine core elsewhere, text in the event loop."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Self, TypeVar

from minivllm_runtime.config import EngineConfig
from minivllm_runtime.engine.connection import Engine
from minivllm_runtime.engine.input_processor import InputProcessor
from minivllm_runtime.engine.output_processor import OutputProcessor
from minivllm_runtime.engine.submission import Submission
from minivllm_runtime.errors import EngineDead, InvalidParameter, QueueFull
from minivllm_runtime.messages import (
    AbortRequest,
    Accepted,
    AddRequests,
    AskStats,
    EngineRequest,
    EngineStats,
    Refused,
    StepOutput,
)
from minivllm_runtime.sampling_params import SamplingParams

if TYPE_CHECKING:
    from minivllm_runtime.engine.builder import OnModel, Progress

_ENCODER_THREADS = 2
_T = TypeVar("_T")

__all__ = ["AsyncEngine", "Submission"]


class AsyncEngine:
    """Serves many concurrent submissions from one event loop.

    `start` binds the engine to the running loop; everything but `build` is called from that loop.

    Attributes:
        model_config, tokenizer: Of the model that is served.
        dtype_name, device_name: Of weights and KV cache.
        kernels: What computes: "PyTorch", "C" or "Triton".
        num_blocks, block_size: Of the KV pool.
        max_model_len: Most tokens of one request.
        error: Why the engine is dead; None while it works.
    """

    def __init__(self, engine: Engine) -> None:
        self.model_config = engine.model_config
        self.tokenizer = engine.tokenizer
        self.dtype_name, self.device_name = engine.dtype_name, engine.device_name
        self.kernels = engine.kernels
        self.num_blocks, self.block_size = engine.num_blocks, engine.block_size
        self.max_model_len = engine.max_model_len
        self.error: str | None = None
        self._stats = engine.stats()
        self._input = InputProcessor(engine.tokenizer, engine.model_config, engine.max_model_len)
        self._output = OutputProcessor(engine.tokenizer)
        self._connection = engine.connect()
        self._is_started = False
        self._encoders = ThreadPoolExecutor(_ENCODER_THREADS, thread_name_prefix="minivllm-encoder")
        self._client_id = secrets.token_hex(8)  # an engine may have other clients
        self._numbers = count()
        self._submissions: dict[str, Submission] = {}
        self._answers: dict[str, asyncio.Future[Accepted | Refused]] = {}
        self._queue_time_observers: list[Callable[[float], object]] = []
        self._sign_of_life: asyncio.Task[None] | None = None
        self._sign_asked_at_s = 0.0

    @classmethod
    def build(
        cls, config: EngineConfig, *, progress: Progress | None = None, on_model: OnModel | None = None
    ) -> Self:
        """Load the model and build the engine; blocks for seconds.

        Args:
            config: What to build.
            progress: Called with (stage, done, total).
            on_model: Called with the model's shape before its weights are read; what it raises ends the building.

        Raises:
            ModelLoadError: the model is missing, damaged or of an unsupported kind.
            InvalidParameter: a setting does not fit the model or the machine.
        """
        # Imported here: a client of an engine process needs no tensor library.
        if config.engine_process:
            from minivllm_runtime.engine.process.remote_engine import RemoteEngine

            return cls(RemoteEngine.spawn(config, progress=progress, on_model=on_model))
        from minivllm_runtime.engine.builder import build_engine

        return cls(build_engine(config, progress=progress, on_model=on_model))

    @property
    def is_alive(self) -> bool:
        """Whether the engine runs and can serve."""
        return self._is_started and self.error is None

    def stats(self) -> EngineStats:
        """Gauges and counters as of what was last heard of the engine."""
        return self._stats

    async def ask_stats(self, patience_s: float = 5.0) -> EngineStats:
        """Gauges and counters of this moment; what was last heard, if the engine does not answer for so long.

        Of several clients those hear little that have no requests, so `stats` of one may be behind that of another.
        """
        if self.is_alive:
            name = self._new_name("stats")
            with suppress(TimeoutError, EngineDead):
                async with asyncio.timeout(patience_s):
                    await self._ask(name, AskStats(name))
        return self._stats

    def silence_s(self) -> float:
        """Seconds for which the engine has owed a sign of life; 0 if it gave the last one that was asked for.

        Each call after a sign asks for the next. One is given between two steps: an engine that is alive, but held up
        for ever by its device, gives none.
        """
        now_s = asyncio.get_running_loop().time()
        if self._sign_of_life is None or self._sign_of_life.done():
            self._sign_of_life = asyncio.create_task(self._ask_for_life())
            self._sign_asked_at_s = now_s
        return now_s - self._sign_asked_at_s

    def observe_queue_times(self, observer: Callable[[float], object]) -> None:
        """Call `observer` in the event loop with the seconds that each request waited, when it is first scheduled."""
        self._queue_time_observers.append(observer)

    async def start(self) -> None:
        """Start the engine, or connect to its process; its results arrive in the running event loop."""
        await self._connection.start(self._deliver, self._die)
        self._is_started = True

    async def shutdown(self) -> None:
        """Stop the engine after its current step; submissions that are still open fail with EngineDead."""
        self._die("the engine was shut down")  # first: stopping takes a while, and others go on meanwhile
        await self._connection.stop()
        self._encoders.shutdown(wait=False)

    async def encode(self, text: str) -> tuple[int, ...]:
        """Tokenize a prompt without blocking the event loop.

        Raises:
            InvalidParameter: the text cannot fit the context, is not valid Unicode, or gives no token.
            EngineDead: the engine stopped.
        """
        return await self._in_encoder(lambda: self._input.encode(text))

    async def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> tuple[int, ...]:
        """Render and tokenize a conversation without blocking the event loop; see `Tokenizer.render_chat`.

        Raises:
            InvalidParameter: there is no template, it refuses the conversation, or that cannot fit the context.
            EngineDead: the engine stopped.
        """
        return await self._in_encoder(lambda: self._input.encode_chat(messages, tools, variables))

    async def submit(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        request_id: str,
        default_max_tokens: int | None = None,
        tenant: str = "",
    ) -> Submission:
        """Queue all choices of all prompts, or none.

        Args:
            prompts: Token ids of each prompt.
            params: How to generate; the same for all prompts.
            request_id: Appears in the names of the requests; several submissions may have the same.
            default_max_tokens: Taken where `params.max_tokens` is None, cut to what there is room for.
            tenant: Whose submission it is; the fair policy shares between tenants.

        Raises:
            InvalidParameter: a value is out of range, or the request can never fit.
            QueueFull: too many requests are waiting.
            EngineDead: the engine stopped.
        """
        if not self.is_alive:
            raise EngineDead(self.error or "the engine is not started")
        name = self._new_name(request_id)
        requests = self._input.make_requests(
            name, prompts, params, default_max_tokens=default_max_tokens, tenant=tenant
        )
        self._output.register(name, requests, params)
        num_prompt_tokens = sum(len(request.prompt_token_ids) for request in requests[:: params.n])
        submission = Submission(num_prompt_tokens, lambda: self._abort(name))
        self._submissions[name] = submission
        try:
            await self._offer(name, requests)
        except BaseException:
            self._abort(name)
            raise
        return submission

    async def tokenize(self, text: str, *, add_special_tokens: bool = True) -> tuple[int, ...]:
        """The ids of a text, none for an empty one; raises what `encode` raises otherwise."""
        return await self._in_encoder(
            lambda: self._input.tokenize(text, add_special_tokens=add_special_tokens)
        )

    async def detokenize(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of some ids.

        Raises:
            InvalidParameter: an id outside the embedding, or more ids than the context has room for.
            EngineDead: the engine stopped.
        """
        return await self._in_encoder(
            lambda: self._input.detokenize(token_ids, skip_special_tokens=skip_special_tokens)
        )

    async def _in_encoder(self, encode: Callable[[], _T]) -> _T:
        if self.error is not None:
            raise EngineDead(self.error)
        return await asyncio.get_running_loop().run_in_executor(self._encoders, encode)

    async def _offer(self, name: str, requests: tuple[EngineRequest, ...]) -> None:
        """Send the requests to the engine and wait until it took or refused them."""
        match await self._ask(name, AddRequests(name, requests)):
            case Refused(message=message, queue_full=True):
                raise QueueFull(message)
            case Refused(message=message, param=param):
                raise InvalidParameter(param, message)

    async def _ask(self, name: str, command: AddRequests | AskStats) -> Accepted | Refused:
        """Send a command whose batch id is `name` and wait for its answer."""
        answer: asyncio.Future[Accepted | Refused] = asyncio.get_running_loop().create_future()
        self._answers[name] = answer
        try:
            self._connection.send(command)
            return await answer
        finally:
            del self._answers[name]

    async def _ask_for_life(self) -> None:
        name = self._new_name("life")
        with suppress(EngineDead):
            await self._ask(name, AskStats(name))

    def _new_name(self, purpose: str) -> str:
        """Never used again: the engine may still compute for a submission that was closed a moment ago."""
        return f"{purpose}-{self._client_id}-{next(self._numbers)}"

    def _abort(self, name: str) -> None:
        self._submissions.pop(name, None)
        self._abort_requests(self._output.abort(name))

    def _abort_requests(self, request_ids: Sequence[str]) -> None:
        if self.error is not None:  # nothing computes, and nobody listens
            return
        for request_id in request_ids:
            self._connection.send(AbortRequest(request_id))

    def _deliver(self, output: StepOutput) -> None:
        self._stats = output.stats
        if self.error is not None:  # on its way when the engine was shut down
            return
        for observer in self._queue_time_observers:
            for seconds in output.queue_times_s:
                observer(seconds)
        for answer in output.answers:
            pending = self._answers.get(answer.batch_id)
            if pending is not None and not pending.done():
                pending.set_result(answer)
        processed = self._output.process(output.tokens)
        for update in processed.updates:
            submission = self._submissions[update.submission_id]
            if update.is_finished:
                del self._submissions[update.submission_id]
            submission.deliver(update)
        self._abort_requests(processed.aborts)

    def _die(self, reason: str) -> None:
        self.error = self.error or reason
        submissions, self._submissions = self._submissions, {}
        for submission in submissions.values():
            submission.fail(EngineDead(self.error))
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(EngineDead(self.error))
