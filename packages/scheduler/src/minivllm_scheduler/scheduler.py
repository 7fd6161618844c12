"""Scheduler: which request computes which tokens in the next step.

There is no prefill phase and no decode phase. A request is *behind* by some tokens, and a step lets it catch
up as far as the token budget goes. Chunked prefill, prefix-cache hits, recomputation after a preemption and
decode are this one rule.

Steps execute in the order they are scheduled in, so a block freed now may be handed to the next step at once,
even while an earlier step still writes it. What leaves that order waits for `update`: only there do blocks
enter the prefix cache.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from minivllm_kvcache import KVCacheManager
from minivllm_scheduler import invariants
from minivllm_scheduler.config import SchedulerConfig
from minivllm_scheduler.errors import DuplicateRequest, QueueFull, RequestTooLarge, UnexpectedResult
from minivllm_scheduler.output import RequestUpdate, SchedulerOutput, StepResult, new_row
from minivllm_scheduler.policy import (
    FCFS,
    LIFO,
    AdmissionPolicy,
    Pool,
    VictimPolicy,
    WaitingOrder,
    Watermark,
)
from minivllm_scheduler.policy_guard import PolicyGuard
from minivllm_scheduler.request import Request, RequestState, RequestStatus
from minivllm_scheduler.request_view import RequestView, RequestViews
from minivllm_scheduler.sibling_groups import SiblingGroups
from minivllm_scheduler.stats import SchedulerStats
from minivllm_scheduler.step import StepDraft, StepInFlight
from minivllm_scheduler.waiting_queue import WaitingQueue

MAX_STEPS_IN_FLIGHT: Final = 2


class Scheduler:
    """Continuous batching over a paged KV cache.

    `now` is a time in seconds of any clock that does not go backwards; the scheduler never reads one itself.
    The same calls give the same outputs in any process. Not thread-safe: its owner calls it from one thread.

    Args:
        config: Limits.
        kv: Block tables and prefix cache; the scheduler is its only user.
        order: Who waits in front.
        victim: Who is preempted when a running request needs a block and none is free.
        admission: How many blocks the admission of the next one leaves free; None is the config's watermark.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        kv: KVCacheManager,
        *,
        order: WaitingOrder = FCFS,
        victim: VictimPolicy = LIFO,
        admission: AdmissionPolicy | None = None,
    ) -> None:
        self._config = config
        self._kv = kv
        self._pool = Pool(kv.num_blocks, kv.block_size)
        watermark_blocks = int(config.watermark * kv.num_blocks)
        self._policies = PolicyGuard(
            order, admission or Watermark(config.watermark), victim, watermark_blocks
        )
        self._max_row_tokens = config.prefill_chunk_size or config.max_num_batched_tokens
        self._requests: dict[str, RequestState] = {}
        self._running: list[RequestState] = []  # in order of admission
        self._waiting = WaitingQueue(config.max_overtaking)
        self._groups = SiblingGroups()
        self._in_flight: deque[StepInFlight] = deque()
        self._released: list[str] = []
        self._now = 0.0
        self._num_arrivals = 0
        self._num_steps = 0
        self._num_scheduled_tokens = 0
        self._num_preemptions = 0

    @property
    def config(self) -> SchedulerConfig:
        """The limits, as given."""
        return self._config

    @property
    def num_in_flight(self) -> int:
        """Steps scheduled and not yet updated; at most 2."""
        return len(self._in_flight)

    @property
    def num_requests(self) -> int:
        """Requests that have not ended. A step may still be in flight when none is left."""
        return len(self._requests)

    def add(self, requests: Sequence[Request], now: float) -> None:
        """Accepts all the requests, or raises and accepts none.

        Raises:
            DuplicateRequest: An id belongs to a request that has not ended, or occurs twice.
            RequestTooLarge: A request would not fit if it were alone.
            QueueFull: More than `max_num_waiting` would wait, free places among the running ones counted first.
        """
        new_ids: set[str] = set()
        for request in requests:
            if request.request_id in self._requests or request.request_id in new_ids:
                raise DuplicateRequest(request.request_id)
            new_ids.add(request.request_id)
            self._refuse_what_never_fits(request)
        # Who comes when nothing runs waits only for the next step.
        room = self._config.max_num_requests - len(self._running)
        if self._num_waiting + len(requests) > room:
            raise QueueFull(self._num_waiting, len(requests), room)
        self._now = now
        for request in requests:
            rank = self._policies.rank(request, now)
            state = RequestState(request, self._kv.block_size, self._num_arrivals, now, rank)
            self._num_arrivals += 1
            self._requests[request.request_id] = state
            if self._groups.enter(state):
                self._waiting.push(state)

    def abort(self, request_id: str, now: float) -> bool:
        """Ends a request in whatever state it is, and frees what it holds.

        No `RequestUpdate` follows; what steps in flight still compute for it is dropped.

        Returns:
            False if the id is unknown or its request has ended.
        """
        self._now = now
        state = self._requests.get(request_id)
        if state is None:
            return False
        self._end(state)
        return True

    def schedule(self, now: float) -> SchedulerOutput | None:
        """Puts the next step together: running requests in order of admission, then waiting ones.

        Returns:
            The step, or None if there is nothing to compute now: no request exists, or a step is in flight
            and `update` must come first.
        """
        self._now = now
        if len(self._in_flight) == MAX_STEPS_IN_FLIGHT:
            return None
        draft = StepDraft(self._config.max_num_batched_tokens)
        self._schedule_running(draft)
        if not draft.out_of_room:
            self._admit_waiting(draft)
        if draft.is_empty:
            return None
        step = draft.finish(self._num_steps, tuple(self._released))
        self._released.clear()
        self._in_flight.append(step)
        self._num_steps += 1
        self._num_scheduled_tokens += self._config.max_num_batched_tokens - draft.budget
        return step.output

    def update(self, result: StepResult, now: float) -> tuple[RequestUpdate, ...]:
        """Takes in the result of the oldest step in flight.

        What it computed enters the prefix cache. Ids of requests that ended meanwhile are dropped; those of
        requests preempted meanwhile are kept.

        Returns:
            New output ids, in row order; a request that ends with them holds nothing any more.

        Raises:
            UnexpectedResult: The result is not that of the oldest step in flight; nothing has changed.
        """
        if not self._in_flight:
            raise UnexpectedResult(f"got the result of step {result.step_id}, but no step is in flight")
        step = self._in_flight[0]
        sampled_ids = iter(step.sampled_ids(result))
        self._now = now
        self._in_flight.popleft()
        updates: list[RequestUpdate] = []
        # Enum members are looked up once: that costs as much as the rest of a row.
        finished, running, block_size = RequestStatus.FINISHED, RequestStatus.RUNNING, self._pool.block_size
        for state, start, end, samples in step.progress:
            token_id = next(sampled_ids) if samples else None
            status = state.status
            if status is running:
                if start // block_size != end // block_size:
                    self._kv.commit(state.request_id, state.keys, end)
                if state.request.group is not None and end >= state.num_prompt_tokens:
                    self._let_wait(self._groups.prompt_committed(state))
            elif status is finished:
                continue
            if token_id is not None:
                finish_reason = state.append(token_id)
                if finish_reason is not None:
                    self._end(state)
                update = (state.request_id, (token_id,), finish_reason, state.num_cached_tokens or 0)
                updates.append(new_row(RequestUpdate, update))
        return tuple(updates)

    def fail(self, now: float) -> tuple[str, ...]:
        """Gives up the steps in flight: ends every request that has a row in one, and frees its blocks.

        Returns:
            The requests ended by this, in row order. No `RequestUpdate` follows.
        """
        self._now = now
        steps = tuple(self._in_flight)
        self._in_flight.clear()
        # The executor may have failed before it read what these steps release.
        self._released[:0] = [request_id for step in steps for request_id in step.output.released]
        ended: list[str] = []
        for state in (progress[0] for step in steps for progress in step.progress):
            if state.status is not RequestStatus.FINISHED:
                self._end(state)
                ended.append(state.request_id)
        return tuple(ended)

    def stats(self) -> SchedulerStats:
        """Sizes now, and totals since creation; at the same cost however many requests there are."""
        oldest = [state.arrival_time_s for state in (self._waiting.oldest, self._groups.oldest) if state]
        return SchedulerStats(
            num_running=len(self._running),
            num_waiting=self._num_waiting,
            num_in_flight=len(self._in_flight),
            oldest_wait_s=self._now - min(oldest, default=self._now),
            total_steps=self._num_steps,
            total_scheduled_tokens=self._num_scheduled_tokens,
            total_preempted=self._num_preemptions,
            total_policy_faults=self._policies.num_faults,
        )

    def check_invariants(self) -> None:
        """Asserts that queues, counts, steps in flight and blocks agree. For tests and idle moments."""
        assert len(self._running) <= self._config.max_num_seqs
        assert len(self._in_flight) <= MAX_STEPS_IN_FLIGHT
        invariants.check_containers(self._requests, self._running, self._waiting, self._groups)
        invariants.check_progress(self._requests.values(), self._in_flight)
        invariants.check_blocks(self._running, self._kv)

    @property
    def _num_waiting(self) -> int:
        return len(self._waiting) + self._groups.num_held

    def _refuse_what_never_fits(self, request: Request) -> None:
        num_prompt_tokens, max_tokens = len(request.prompt_token_ids), request.max_tokens
        pool_tokens = self._kv.num_blocks * self._kv.block_size
        if num_prompt_tokens + max_tokens > self._config.max_model_len:
            limit, limited_by = self._config.max_model_len, "context"
        elif num_prompt_tokens + max_tokens - 1 > pool_tokens:  # the last sampled token needs no KV
            limit, limited_by = pool_tokens, "pool"
        else:
            return
        raise RequestTooLarge(request.request_id, num_prompt_tokens, max_tokens, limit, limited_by)

    def _schedule_running(self, draft: StepDraft) -> None:
        """Lets running requests catch up, each by at least one token, and preempts where blocks run out."""
        running, block_size = self._running, self._pool.block_size
        index = 0
        while index < len(running):  # a preemption shortens the list behind `index`
            state = running[index]
            index += 1
            last = state.num_known_tokens + state.num_placeholders
            if last == state.max_total_tokens or (state.num_placeholders and not state.request.runs_ahead):
                continue  # its last token, or the one its next row depends on, is in flight
            start = state.num_computed_tokens
            num_tokens = last - start
            if num_tokens > 1:  # leave a token of the budget to everyone behind
                num_tokens = min(num_tokens, self._max_row_tokens, draft.budget - (len(running) - index))
            end = start + num_tokens
            if -start // block_size == -end // block_size:
                draft.add_row(state, num_tokens, ())  # its last block has room: the usual case
                continue
            new_block_ids = self._kv.grow(state.request_id, end)
            if new_block_ids is None:
                draft.out_of_room = True
                new_block_ids = self._grow_by_preempting(state, index, end)
                if new_block_ids is None:
                    return  # it is the last one now, and goes on when an older one gives blocks back
            draft.add_row(state, num_tokens, new_block_ids)

    def _grow_by_preempting(self, state: RequestState, behind: int, end: int) -> tuple[int, ...] | None:
        """Preempts from `running[behind:]` until the blocks of `state` cover its first `end` tokens."""
        while len(self._running) > behind:
            candidates = self._running[behind:]
            self._preempt(candidates[self._policies.victim(RequestViews(candidates, self._kv))])
            new_block_ids = self._kv.grow(state.request_id, end)
            if new_block_ids is not None:
                return new_block_ids
        return None

    def _preempt(self, state: RequestState) -> None:
        """Takes a request's blocks. It waits in front, keeps its ids, and computes them again later."""
        self._stop_running(state)
        state.status = RequestStatus.PREEMPTED
        state.num_computed_tokens = 0
        self._waiting.push(state)
        self._num_preemptions += 1

    def _admit_waiting(self, draft: StepDraft) -> None:
        """Spends what is left of the budget on waiting requests, strictly in their order."""
        while draft.budget and self._waiting and len(self._running) < self._config.max_num_seqs:
            state = self._waiting.head()
            if self._has_row_in_flight(state) or not self._admit(draft, state):
                return

    def _has_row_in_flight(self, state: RequestState) -> bool:
        """Whether a request was preempted so lately that an id of it may still be unknown."""
        preempted = state.status is RequestStatus.PREEMPTED
        return preempted and any(state is row[0] for step in self._in_flight for row in step.progress)

    def _admit(self, draft: StepDraft, state: RequestState) -> bool:
        """Starts the head of the queue if its known tokens fit beside what must stay free. Else returns False."""
        use_cache = state.request.reads_prefix_cache
        num_cached_tokens = self._kv.match(state.keys) if use_cache else 0
        num_tokens = min(state.num_known_tokens - num_cached_tokens, self._max_row_tokens, draft.budget)
        reserve = 0
        if self._running:
            end = num_cached_tokens + num_tokens
            blocks = self._pool.num_blocks_for
            reserve = blocks(state.num_known_tokens) - blocks(end) + self._num_blocks_to_leave(state)
        allocation = self._kv.allocate(
            state.request_id, state.keys, num_tokens, use_cache=use_cache, reserve=reserve
        )
        if allocation is None:
            return False
        self._waiting.take_head()
        self._policies.admitted(state.rank)
        self._running.append(state)
        state.start_running(num_cached_tokens)
        draft.admit(state, allocation.block_ids)
        draft.add_row(state, num_tokens, ())
        return True

    def _num_blocks_to_leave(self, state: RequestState) -> int:
        candidate, running = RequestView(state, self._kv), RequestViews(self._running, self._kv)
        return self._policies.num_blocks_to_leave(candidate, running, self._pool)

    def _end(self, state: RequestState) -> None:
        """Takes a live request out of everything but the steps in flight."""
        if state.status is RequestStatus.RUNNING:
            self._stop_running(state)
        elif state.status is not RequestStatus.HELD:
            self._waiting.remove(state)
        state.status = RequestStatus.FINISHED
        del self._requests[state.request_id]
        self._let_wait(self._groups.leave(state))

    def _stop_running(self, state: RequestState) -> None:
        self._running.remove(state)
        self._kv.free(state.request_id)
        self._released.append(state.request_id)

    def _let_wait(self, states: Iterable[RequestState]) -> None:
        for state in states:
            self._waiting.push(state)
