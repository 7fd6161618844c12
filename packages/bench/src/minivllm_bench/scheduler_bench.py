"""What the scheduler and the block allocator cost by themselves: no model, no tensors, one thread.

Times are processor time of the measuring thread, so whatever else the machine does is not in them. As the
engine does when it is ready, the garbage collector is told to leave alone what exists before the first step.
"""

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from minivllm_scheduler import (
    KVCacheManager,
    PrefixKeys,
    Request,
    Scheduler,
    SchedulerConfig,
    SchedulerOutput,
    StepResult,
)
from minivllm_scheduler.simulation import percentile

BLOCK_SIZE: Final = 16
PROMPT_TOKENS: Final = 128
LARGE_POOL_BLOCKS: Final = 1_000_000
WARM_UP_STEPS: Final = BLOCK_SIZE
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """One step with so many running requests, each of which decodes a token.

    Attributes:
        running: Requests in the step.
        num_blocks: Size of the pool.
        schedule_us: `Scheduler.schedule`, median over the steps, in microseconds.
        schedule_p99_us: Its 99th percentile.
        update_us: `Scheduler.update`, median.
        update_p99_us: Its 99th percentile.
    """

    running: int
    num_blocks: int
    schedule_us: float
    schedule_p99_us: float
    update_us: float
    update_p99_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCost:
    """One call of the allocator, for a prompt of `PROMPT_TOKENS`.

    Attributes:
        call: Which one.
        num_blocks: Size of the pool.
        us: Median, in microseconds.
        p99_us: 99th percentile.
    """

    call: str
    num_blocks: int
    us: float
    p99_us: float


class Stopwatch:
    """Collects how long calls take, by name."""

    def __init__(self) -> None:
        self._times_ns: dict[str, list[int]] = {}

    def time(self, name: str, call: Callable[[], _Result]) -> _Result:
        """Makes the call and keeps its time."""
        start = time.thread_time_ns()
        result = call()
        end = time.thread_time_ns()
        self._times_ns.setdefault(name, []).append(end - start)
        return result

    def names(self) -> tuple[str, ...]:
        """What was timed, in order of the first time."""
        return tuple(self._times_ns)

    def percentile_us(self, name: str, percent: int) -> float:
        """A percentile of the times of `name`, in microseconds."""
        return percentile(sorted(self._times_ns[name]), percent) / 1000


def measure_steps(running: int, num_steps: int, num_blocks: int | None = None) -> StepCost:
    """Times decode steps of requests whose prompts are 128 to 143 tokens, all different.

    With lengths spread over a block, each step fills and takes as many blocks as any other.

    Args:
        running: Requests.
        num_steps: Timed steps.
        num_blocks: Size of the pool; None is what the requests fill.
    """
    last = PROMPT_TOKENS + 2 * BLOCK_SIZE + WARM_UP_STEPS + num_steps
    num_blocks = num_blocks or running * (last // BLOCK_SIZE + 1)
    scheduler = _running_scheduler(running, last, num_blocks)
    for _ in range(WARM_UP_STEPS):
        _answer(scheduler, _next_step(scheduler))
    watch = Stopwatch()
    with _frozen_objects():
        for _ in range(num_steps):
            output = watch.time("schedule", lambda: _next_step(scheduler))
            result = _result_of(output)
            watch.time("update", lambda result=result: scheduler.update(result, 0.0))  # type: ignore[misc]
    return StepCost(
        running=running,
        num_blocks=num_blocks,
        schedule_us=watch.percentile_us("schedule", 50),
        schedule_p99_us=watch.percentile_us("schedule", 99),
        update_us=watch.percentile_us("update", 50),
        update_p99_us=watch.percentile_us("update", 99),
    )


def measure_calls(num_calls: int, num_blocks: int) -> tuple[CallCost, ...]:
    """Times the allocator's calls, each with another prompt; in `match` every full block but one is a hit."""
    kv = KVCacheManager(num_blocks, BLOCK_SIZE)
    watch = Stopwatch()
    with _frozen_objects():
        for index in range(num_calls):
            _one_request(kv, watch, range(index, index + PROMPT_TOKENS))
    return tuple(
        CallCost(
            call=name,
            num_blocks=num_blocks,
            us=watch.percentile_us(name, 50),
            p99_us=watch.percentile_us(name, 99),
        )
        for name in watch.names()
    )


def bytes_per_block(num_blocks: int) -> float:
    """Memory that a new allocator takes, over its blocks."""
    gc.collect()
    tracemalloc.start()
    try:
        kv = KVCacheManager(num_blocks, BLOCK_SIZE)
        return tracemalloc.get_traced_memory()[0] / kv.num_blocks
    finally:
        tracemalloc.stop()


def _one_request(kv: KVCacheManager, watch: Stopwatch, prompt: Sequence[int]) -> None:
    """From the first look at a prompt to the end of its request, and a second look that finds it cached."""
    keys = PrefixKeys(prompt, BLOCK_SIZE)
    watch.time("allocate 8 blocks", lambda: kv.allocate("r", keys, PROMPT_TOKENS))
    watch.time("grow by a block", lambda: kv.grow("r", PROMPT_TOKENS + 1))
    watch.time("commit 8 blocks", lambda: kv.commit("r", keys, PROMPT_TOKENS))
    watch.time("free 9 blocks", lambda: kv.free("r"))
    again = PrefixKeys(prompt, BLOCK_SIZE)
    watch.time("match a new prompt", lambda: kv.match(again))
    watch.time("match it again", lambda: kv.match(again))


def _running_scheduler(running: int, last: int, num_blocks: int) -> Scheduler:
    """A scheduler in which `running` requests have computed their prompts."""
    config = SchedulerConfig(
        max_num_seqs=running,
        max_num_batched_tokens=running * (PROMPT_TOKENS + BLOCK_SIZE),
        max_model_len=2 * last,
        max_num_waiting=running,
        watermark=0.0,
    )
    scheduler = Scheduler(config, KVCacheManager(num_blocks, BLOCK_SIZE))
    requests = [
        Request(
            request_id=f"request-{index}",
            prompt_token_ids=range(index, index + PROMPT_TOKENS + index % BLOCK_SIZE),
            max_tokens=last - PROMPT_TOKENS - BLOCK_SIZE,
        )
        for index in range(running)
    ]
    scheduler.add(requests, 0.0)
    _answer(scheduler, _next_step(scheduler))
    return scheduler


def _next_step(scheduler: Scheduler) -> SchedulerOutput:
    output = scheduler.schedule(0.0)
    assert output is not None
    return output


def _result_of(output: SchedulerOutput) -> StepResult:
    return StepResult(output.step_id, tuple((row.start,) for row in output.rows if row.samples))


def _answer(scheduler: Scheduler, output: SchedulerOutput) -> None:
    scheduler.update(_result_of(output), 0.0)


@contextmanager
def _frozen_objects() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
