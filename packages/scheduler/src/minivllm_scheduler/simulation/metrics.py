"""SimulationMetrics: turns what happens in a simulation into its report, at a constant cost per request and step."""

from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain

from minivllm_kvcache import KVCacheManager
from minivllm_scheduler.output import RequestUpdate, SchedulerOutput
from minivllm_scheduler.request import Request
from minivllm_scheduler.simulation.cost import StepLoad
from minivllm_scheduler.simulation.kv_use_record import KVUseRecord
from minivllm_scheduler.simulation.report import ClassReport, Distribution, SimulationReport
from minivllm_scheduler.simulation.traffic import TimedRequest
from minivllm_scheduler.stats import SchedulerStats


class _ClassRecord:
    """What the requests of one tenant and priority got so far."""

    __slots__ = ("latency_s", "num_finished", "num_output_tokens", "queue_s", "tpot_s", "ttft_s")

    def __init__(self) -> None:
        self.num_finished = 0
        self.num_output_tokens = 0
        self.ttft_s = array("d")
        self.tpot_s = array("d")
        self.queue_s = array("d")
        self.latency_s = array("d")


class _Live:
    """A request that has not ended."""

    __slots__ = ("admitted_s", "arrival", "computed_end", "first_token_s", "num_cached_tokens", "record")

    def __init__(self, arrival: TimedRequest, record: _ClassRecord) -> None:
        self.arrival = arrival
        self.record = record
        self.admitted_s: float | None = None
        self.first_token_s: float | None = None
        self.num_cached_tokens = 0
        self.computed_end = 0  # positions below this were computed, or cached, at some time; see `launched`


class SimulationMetrics:
    """Follows every request from arrival to end.

    Decode rows, which are nearly all rows, are only summed: a request's position is looked up for those rows
    that compute several tokens or do not catch up, since no other row computes anything a second time.

    Args:
        kv: The pool whose use is followed.

    Attributes:
        num_finished: Requests that got all their tokens so far.
        num_refused: Requests that were not accepted so far.
    """

    def __init__(self, kv: KVCacheManager) -> None:
        self._kv = kv
        self._kv_use = KVUseRecord()
        self.num_finished = 0
        self.num_refused = 0
        self._live: dict[str, _Live] = {}
        self._awaiting_first_token: set[str] = set()
        self._classes: defaultdict[tuple[str, int], _ClassRecord] = defaultdict(_ClassRecord)
        self._num_steps = 0
        self._num_rows = 0
        self._num_computed_tokens = 0
        self._num_prompt_tokens = 0
        self._num_cached_tokens = 0
        self._num_recomputed_tokens = 0
        self._last_token_s = 0.0

    def arrived(self, arrival: TimedRequest) -> None:
        """The scheduler accepted a request."""
        request = arrival.request
        self._live[request.request_id] = _Live(arrival, self._classes[request.tenant, request.priority])
        self._awaiting_first_token.add(request.request_id)

    def refused(self) -> None:
        """The scheduler did not accept a request."""
        self.num_refused += 1

    def launched(self, output: SchedulerOutput, load: StepLoad, now_s: float) -> None:
        """A step was launched at `now_s`, with the blocks for it allocated."""
        self._take_kv_use(now_s)
        self._num_steps += 1
        self._num_rows += load.num_rows
        self._num_computed_tokens += load.num_tokens
        for admitted in output.admitted:
            live = self._live[admitted.request_id]
            if live.admitted_s is None:
                live.admitted_s = now_s
                live.num_cached_tokens = live.computed_end = admitted.num_cached_tokens
                live.record.queue_s.append(now_s - live.arrival.time_s)
            elif len(admitted.token_ids) > admitted.num_prompt_tokens:
                live.computed_end = len(admitted.token_ids) - 1  # the last output id was sampled from there
        if load.num_tokens == load.num_samples:
            return  # decode rows only
        for request_id, start, num_tokens, _, samples in output.rows:
            if num_tokens > 1 or not samples:
                live = self._live[request_id]
                end = start + num_tokens
                self._num_recomputed_tokens += max(0, min(end, live.computed_end) - start)
                live.computed_end = max(end, live.computed_end)

    def updated(self, updates: Sequence[RequestUpdate], now_s: float) -> list[Request]:
        """Output tokens became known at `now_s`. Returns the requests that ended with them."""
        ended: list[Request] = []
        awaiting = self._awaiting_first_token
        for request_id, _, finish_reason, _ in updates:
            if request_id in awaiting:
                awaiting.remove(request_id)
                live = self._live[request_id]
                live.first_token_s = now_s
                live.record.ttft_s.append(now_s - live.arrival.time_s)
            if finish_reason is not None:
                ended.append(self._end(self._live.pop(request_id), now_s))
        if ended:
            self._take_kv_use(now_s)
        return ended

    def report(self, scheduled: SchedulerStats, num_discarded_tokens: int) -> SimulationReport:
        """The figures of everything so far, with what scheduler and executor counted."""
        num_blocks = self._kv.num_blocks
        records = self._classes.values()
        num_output_tokens = sum(record.num_output_tokens for record in records)
        duration_s = self._last_token_s
        per_s: Callable[[int], float] = lambda count: count / duration_s if duration_s else 0.0  # noqa: E731
        return SimulationReport(
            num_finished=self.num_finished,
            num_refused=self.num_refused,
            duration_s=duration_s,
            num_steps=self._num_steps,
            num_rows=self._num_rows,
            num_computed_tokens=self._num_computed_tokens,
            num_prompt_tokens=self._num_prompt_tokens,
            num_output_tokens=num_output_tokens,
            num_cached_tokens=self._num_cached_tokens,
            num_preemptions=scheduled.total_preempted,
            num_recomputed_tokens=self._num_recomputed_tokens,
            num_discarded_tokens=num_discarded_tokens,
            num_policy_faults=scheduled.total_policy_faults,
            requests_per_s=per_s(self.num_finished),
            output_tokens_per_s=per_s(num_output_tokens),
            ttft_s=Distribution.of(chain.from_iterable(record.ttft_s for record in records)),
            tpot_s=Distribution.of(chain.from_iterable(record.tpot_s for record in records)),
            queue_s=Distribution.of(chain.from_iterable(record.queue_s for record in records)),
            latency_s=Distribution.of(chain.from_iterable(record.latency_s for record in records)),
            num_blocks=num_blocks,
            kv_use_mean=self._kv_use.mean_blocks / num_blocks,
            kv_use_peak=self._kv_use.peak_blocks / num_blocks,
            kv_use=tuple(self._kv_use.moments),
            classes=tuple(_class_report(*key, self._classes[key]) for key in sorted(self._classes)),
        )

    def _take_kv_use(self, now_s: float) -> None:
        self._kv_use.take(now_s, self._kv.num_blocks - self._kv.num_allocatable)

    def _end(self, live: _Live, now_s: float) -> Request:
        request, record = live.arrival.request, live.record
        num_output_tokens = live.arrival.num_output_tokens
        assert live.first_token_s is not None
        self.num_finished += 1
        record.num_finished += 1
        record.num_output_tokens += num_output_tokens
        self._num_prompt_tokens += len(request.prompt_token_ids)
        self._num_cached_tokens += live.num_cached_tokens
        record.latency_s.append(now_s - live.arrival.time_s)
        self._last_token_s = now_s
        if num_output_tokens > 1:
            record.tpot_s.append((now_s - live.first_token_s) / (num_output_tokens - 1))
        return request


def _class_report(tenant: str, priority: int, record: _ClassRecord) -> ClassReport:
    return ClassReport(
        tenant=tenant,
        priority=priority,
        num_finished=record.num_finished,
        num_output_tokens=record.num_output_tokens,
        ttft_s=Distribution.of(record.ttft_s),
        queue_s=Distribution.of(record.queue_s),
        latency_s=Distribution.of(record.latency_s),
    )
