"""The engine itself: scheduler, step loop and model runner behind one call per step. It knows token ids only."""

import logging
import time
from collections.abc import Mapping, Sequence

from minivllm_kvcache import KVCacheManager
from minivllm_runtime.engine.grammar_compiler import GrammarCompiler
from minivllm_runtime.engine.pending_grammars import PendingGrammars, ReadyBatch
from minivllm_runtime.engine.queue_clock import QueueClock
from minivllm_runtime.errors import InvalidParameter, RequestFailed
from minivllm_runtime.messages import (
    AbortRequest,
    Accepted,
    AddRequests,
    AskStats,
    Command,
    EngineRequest,
    EngineStats,
    Refused,
    TokenOutput,
)
from minivllm_runtime.worker.model_runner import ModelRunner
from minivllm_scheduler import (
    FinishReason,
    QueueFull,
    Request,
    RequestUpdate,
    Scheduler,
    SchedulerError,
    StepLoop,
)
from minivllm_scheduler.output import new_row

_NO_MORE = (None, None, None, None)
"""The fields of a TokenOutput that a RequestUpdate does not have, empty."""

_log = logging.getLogger(__name__)

_GRAMMAR_POLL_S = 0.005


class EngineCore:
    """Runs requests to their end: `execute` commands, then `step`, over and over.

    An exception in a step ends the requests of the steps in flight and the engine goes on, unless a self-test of the
    device fails as well: then the engine is dead, and `fatal_error` says why.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        kv_manager: KVCacheManager,
        runner: ModelRunner,
        *,
        grammars: GrammarCompiler,
        max_num_requests: int,
        run_ahead: bool,
    ) -> None:
        self._pending_grammars = PendingGrammars(grammars)
        self._late_answers: list[Accepted | Refused] = []
        self._scheduler = scheduler
        self._kv_manager = kv_manager
        self._runner = runner
        self._queue_clock = QueueClock(runner, time.monotonic)
        self._loop = StepLoop(scheduler, self._queue_clock, run_ahead=run_ahead)
        self._max_num_requests = max_num_requests
        self.fatal_error: str | None = None

    @property
    def has_work(self) -> bool:
        """Whether a step would have anything to do: a request to serve, or a step in flight to take in."""
        return self.fatal_error is None and (self._loop.has_work or self._pending_grammars.num_requests > 0)

    @property
    def max_num_batched_tokens(self) -> int:
        """Token budget of one step."""
        return self._scheduler.config.max_num_batched_tokens

    @property
    def max_num_requests(self) -> int:
        """Requests that are taken when there are no others: more at once never are."""
        return self._max_num_requests

    @property
    def queue_room(self) -> int:
        """Requests that are taken now."""
        return self._max_num_requests - self._scheduler.num_requests - self._pending_grammars.num_requests

    def execute(self, commands: Sequence[Command]) -> tuple[Accepted | Refused, ...]:
        """Carry out commands between two steps.

        Returns:
            One answer per AddRequests. If a grammar must be compiled first, `take_answers` has it later, unless the
            abort of a request is the answer to its batch.
        """
        return tuple(answer for command in commands if (answer := self._execute(command)) is not None)

    def step(self) -> tuple[TokenOutput, ...]:
        """Run one pass of the step loop. Without work, or once the engine is dead, nothing happens."""
        if not self.has_work:
            return ()
        self._late_answers += map(self._add, self._pending_grammars.take_ready())
        if not self._loop.has_work:
            self._pending_grammars.wait(_GRAMMAR_POLL_S)  # not for long: the next command may be an abort
            return ()
        try:
            updates = self._loop.step(time.monotonic())
        except Exception as error:
            _log.exception("a step failed; its requests end")
            return self._fail(error)
        except BaseException:  # an interrupt from the keyboard: its steps are lost, the engine is not
            self._give_up_steps()
            raise
        failed = self._runner.grammar_errors()
        if failed:  # what was sampled in spite of it is no output
            updates = tuple(update for update in updates if update.request_id not in failed)
        plain = not self._runner.has_logprobs
        outputs = tuple(
            # An update is what most outputs begin with; the rest of them is nothing.
            new_row(TokenOutput, update + _NO_MORE) if plain and update[2] is None else self._report(update)
            for update in updates
        )
        return outputs + self._end_failed_grammars(failed)

    def take_answers(self) -> tuple[Accepted | Refused, ...]:
        """Answers to batches whose grammars were compiled since the last call."""
        answers, self._late_answers = tuple(self._late_answers), []
        return answers

    def stats(self) -> EngineStats:
        """Gauges and counters at this moment."""
        stats, kv = self._scheduler.stats(), self._kv_manager.stats()
        return EngineStats(
            num_running=stats.num_running,
            num_waiting=stats.num_waiting + self._pending_grammars.num_requests,
            num_preemptions=stats.total_preempted,
            num_blocks=self._kv_manager.num_blocks,
            num_blocks_in_use=kv.in_use,
            num_blocks_allocatable=kv.allocatable,
            prefix_queries_tokens=kv.queries,
            prefix_hits_tokens=kv.hits,
            num_steps=stats.total_steps,
        )

    def take_queue_times(self) -> tuple[float, ...]:
        """Seconds that requests waited which were first scheduled since the last call."""
        return self._queue_clock.take()

    def _execute(self, command: Command) -> Accepted | Refused | None:
        match command:
            case AddRequests():
                if (refused := self._refuse_what_has_no_room(command)) is not None:
                    return refused
                batch = self._pending_grammars.take(command)
                return None if batch is None else self._add(batch)
            case AskStats(batch_id):
                return Accepted(batch_id)
            case AbortRequest(request_id):
                if (held := self._pending_grammars.drop(request_id)) is not None:
                    return Refused(held, "the request was aborted", queue_full=False)
                if self._scheduler.abort(request_id, time.monotonic()):
                    self._forget(request_id)
                return None

    def _refuse_what_has_no_room(self, command: AddRequests) -> Refused | None:
        """Here and not in the scheduler, which does not know of the requests that wait for a grammar."""
        num_added, room = len(command.requests), self.queue_room
        if num_added <= room:
            return None
        num_waiting = self.stats().num_waiting
        message = str(QueueFull(num_waiting, num_added, num_waiting + room))
        return Refused(command.batch_id, message, queue_full=num_added <= self._max_num_requests)

    def _add(self, batch: ReadyBatch) -> Accepted | Refused:
        batch_id, requests = batch.command.batch_id, batch.command.requests
        if batch.error is not None:
            return Refused(batch_id, str(batch.error), queue_full=False, param=batch.error.param)
        try:
            self._scheduler.add([_scheduler_request(request) for request in requests], time.monotonic())
        except SchedulerError as error:
            return Refused(batch_id, str(error), queue_full=False)
        for request, grammar in zip(requests, batch.grammars, strict=True):
            self._runner.add_request(request, grammar)
            self._queue_clock.add_request(request.request_id)
        return Accepted(batch_id)

    def _end_failed_grammars(
        self, errors: Mapping[str, InvalidParameter | RequestFailed]
    ) -> tuple[TokenOutput, ...]:
        """End each request whose grammar failed, if this step did not; others are not concerned."""
        for request_id in errors:
            self._scheduler.abort(request_id, time.monotonic())
            self._forget(request_id)
        return tuple(
            TokenOutput(
                request_id,
                (),
                FinishReason.ERROR,
                0,
                str(error),
                error_param=error.param if isinstance(error, InvalidParameter) else None,
            )
            for request_id, error in errors.items()
        )

    def _forget(self, request_id: str) -> None:
        self._queue_clock.remove_request(request_id)
        self._runner.remove_request(request_id)

    def _report(self, update: RequestUpdate) -> TokenOutput:
        """Word an update for the client; the runner forgets a request that ended with it."""
        request_id, token_ids, finish_reason, num_cached_tokens = update
        logprobs = self._runner.logprobs.get(request_id)
        output = TokenOutput(
            request_id,
            token_ids,
            finish_reason,
            num_cached_tokens,
            error=None,
            logprobs=None if logprobs is None else (logprobs,),
            prompt_logprobs=self._runner.take_prompt_logprobs(request_id),
        )
        if finish_reason is not None and self._runner.remove_request(request_id).max_tokens == 0:
            # It was scheduled to sample one token, and that is not part of the prompt.
            return output._replace(token_ids=(), finish_reason=FinishReason.LENGTH, logprobs=None)
        return output

    def _fail(self, error: Exception) -> tuple[TokenOutput, ...]:
        """End the requests of the steps in flight, then find out whether the fault was theirs or the device's."""
        failed = self._give_up_steps()
        try:
            self._runner.self_test()
        except Exception as fatal:
            _log.exception("the self-test failed too; the engine stops")
            self.fatal_error = f"{type(fatal).__name__}: {fatal}"
        message = f"{type(error).__name__}: {error}"
        return tuple(TokenOutput(request_id, (), FinishReason.ERROR, 0, message) for request_id in failed)

    def _give_up_steps(self) -> tuple[str, ...]:
        """Forget the steps in flight; returns their requests, which have ended."""
        ended = self._loop.fail(time.monotonic())
        self._runner.reset()
        for request_id in ended:
            self._runner.remove_request(request_id)
        return ended


def _scheduler_request(request: EngineRequest) -> Request:
    prompt_token_ids, max_tokens = request.prompt_token_ids, request.max_tokens
    if max_tokens == 0:
        # The last token's own score needs the tokens before it only. What is sampled in its place is dropped, so that
        # a prompt which fills the context can be scored.
        prompt_token_ids, max_tokens = prompt_token_ids[:-1] or prompt_token_ids, 1
    return Request(
        request_id=request.request_id,
        prompt_token_ids=prompt_token_ids,
        max_tokens=max_tokens,
        stop_token_ids=request.stop_token_ids,
        priority=request.priority,
        tenant=request.tenant,
        cache_salt=request.cache_salt,
        group=request.group,
        runs_ahead=request.json_schema is None,  # what a grammar allows next depends on the last id
        reads_prefix_cache=request.prompt_logprobs is None,  # a hit has no logits
    )
