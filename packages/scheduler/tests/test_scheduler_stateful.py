"""Random calls to a scheduler in every configuration, on a shadow memory.

The conftest's executor proves every read and its `World` every id. The machines add what may be called when,
and the invariants after each call.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from minivllm_scheduler import (
    COST_AWARE,
    FCFS,
    LEAST_COMPUTED,
    LIFO,
    PRIORITY,
    RESERVE_ALL,
    FairShare,
    QueueFull,
    Request,
    RequestTooLarge,
)

PREFIX = (1, 2, 3, 4, 5, 1, 2, 3)
IDS = st.integers(0, 5)
PROMPTS = st.one_of(
    st.lists(IDS, min_size=1, max_size=10).map(tuple),
    st.builds(lambda length, tail: (*PREFIX[:length], *tail), st.integers(1, 8), st.lists(IDS, max_size=4)),
)
MAX_MODEL_LEN = 20
FEW = st.sampled_from([False, False, False, True])


@st.composite
def batches(draw):
    """The choices of one prompt, or unrelated requests: what a caller adds at once, but for the ids."""
    group = draw(st.sampled_from([None, None, "g", "h"]))
    prompt = draw(PROMPTS)
    return [
        {
            "prompt_token_ids": prompt if group else draw(PROMPTS),
            "max_tokens": draw(st.integers(1, 12)),
            "stop_token_ids": draw(st.sampled_from([frozenset(), frozenset(), frozenset({3})])),
            "priority": draw(st.integers(0, 2)),
            "tenant": draw(st.sampled_from(["", "t", "u"])),
            "cache_salt": draw(st.sampled_from(["", "", "pepper"])),
            "group": group,
            "reads_prefix_cache": draw(st.sampled_from([True, True, False])),
            "runs_ahead": draw(st.sampled_from([True, True, False])),
        }
        for _ in range(draw(st.integers(1, 5)))
    ]


def cut_to_fit(options, limit):
    """The request, its prompt and output made short enough for a scheduler that holds `limit` tokens of it."""
    prompt = options["prompt_token_ids"][: max(1, limit - 1)]
    return options | {
        "prompt_token_ids": prompt,
        "max_tokens": max(1, min(options["max_tokens"], limit - len(prompt))),
    }


class Unruly:
    """A policy in any role that goes through a list of answers, sound or not; an exception is raised."""

    def __init__(self, answers):
        self.answers = answers
        self.num_asked = 0

    def __call__(self, *what_it_is_told):
        for told in what_it_is_told:
            assert repr(told)
        answer = self.answers[self.num_asked % len(self.answers)]
        self.num_asked += 1
        if isinstance(answer, Exception):
            raise answer
        return answer

    def __repr__(self):
        return f"Unruly({self.answers})"


ANSWERS = [
    0,
    1,
    2,
    -1,
    10**6,
    10**400,
    0.5,
    float("nan"),
    float("inf"),
    None,
    True,
    "0",
    ValueError("unruly"),
]
UNRULY = st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=4).map(Unruly)
ALWAYS_REFUSES = Unruly([10**6])


@st.composite
def configurations(draw):
    max_num_seqs = draw(st.sampled_from([1, 2, 3, 5, 5]))
    return {
        "num_blocks": draw(st.integers(3, 12)),
        "block_size": draw(st.integers(1, 4)),
        "prefix_caching": draw(st.sampled_from([True, True, False])),
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": draw(st.integers(max_num_seqs, max_num_seqs + 12)),
        "max_num_waiting": draw(st.integers(4, 16)),
        "max_model_len": MAX_MODEL_LEN,
        "watermark": draw(st.sampled_from([0.0, 0.01, 0.3])),
        "prefill_chunk_size": draw(st.sampled_from([None, None, 1, 3])),
        "max_overtaking": draw(st.sampled_from([0, 2, 256])),
        "order": draw(st.one_of(st.sampled_from([FCFS, PRIORITY]), st.builds(FairShare), UNRULY)),
        "victim": draw(st.one_of(st.sampled_from([LIFO, LEAST_COMPUTED, COST_AWARE]), UNRULY)),
        "admission": draw(st.one_of(st.sampled_from([None, RESERVE_ALL, ALWAYS_REFUSES]), UNRULY)),
    }


class SchedulerMachine(RuleBasedStateMachine):
    """What all drivers do: add, abort, and check after every rule. Subclasses take the steps."""

    make_world: Any
    run_ahead = False
    world: Any = None

    @initialize(configuration=configurations(), keeps_launched_steps=st.booleans())
    def build(self, configuration, keeps_launched_steps):
        self.world = self.make_world(run_ahead=self.run_ahead, **configuration)
        self.world.executor.keeps_launched_steps = keeps_launched_steps
        self.max_num_requests = configuration["max_num_waiting"] + configuration["max_num_seqs"]
        self.reserves_all = configuration["admission"] is RESERVE_ALL
        self.num_added = 0

    @rule(batch=batches(), fits=st.sampled_from([True, True, True, False]))
    def add(self, batch, fits):
        world = self.world
        pool_tokens = world.kv.num_blocks * world.kv.block_size
        if fits:
            batch = [cut_to_fit(options, min(MAX_MODEL_LEN, pool_tokens + 1)) for options in batch]
        requests = [
            Request(request_id=f"r{self.num_added + i}", **options) for i, options in enumerate(batch)
        ]
        largest = max(len(request.prompt_token_ids) + request.max_tokens for request in requests)
        before = world.scheduler.stats()
        if largest > MAX_MODEL_LEN or largest - 1 > pool_tokens:
            expected = RequestTooLarge
        elif before.num_waiting + before.num_running + len(requests) > self.max_num_requests:
            expected = QueueFull
        else:
            self.num_added += len(requests)
            world.add_all(requests)
            return
        with pytest.raises(expected):
            world.add_all(requests)
        assert world.scheduler.stats() == before

    @rule(pick=st.integers(0, 1000), alive=st.booleans())
    def abort(self, pick, alive):
        ids = list(self.world.live if alive else self.world.requests)
        if ids:
            request_id = ids[pick % len(ids)]
            self.world.abort(request_id)
            assert not self.world.scheduler.abort(request_id, self.world.now)

    @invariant()
    def holds(self):
        if self.world is not None:
            self.world.scheduler.check_invariants()
            assert self.world.scheduler.num_requests == len(self.world.live)
            assert not (self.reserves_all and self.world.num_preemptions)

    def teardown(self):
        if self.world is not None:
            self.world.drain()


class InOrderMachine(SchedulerMachine):
    """Steps taken by a StepLoop; some fail."""

    @rule(num_steps=st.sampled_from([1, 2, 4, 8]))
    def step(self, num_steps):
        for _ in range(num_steps):
            self.world.step()

    @rule(place=st.sampled_from(["launch", "result"]), fails=FEW)
    def step_fails(self, place, fails):
        world = self.world
        world.executor.fail_at = place if fails else None
        try:
            world.step()
        except world.executor.Fault:
            world.fail()
            assert world.scheduler.num_in_flight == 0
        world.executor.fail_at = None


class OneAheadMachine(InOrderMachine):
    run_ahead = True


class ByHandMachine(SchedulerMachine):
    """Steps taken in every order that the scheduler allows, which is more than the loop does."""

    @rule(num_passes=st.sampled_from([0, 1, 4, 8]))
    def schedule(self, num_passes):
        """A few passes with one step always in flight, then one more step if the scheduler has one."""
        for _ in range(num_passes):
            self.schedule_one()
            if self.world.scheduler.num_in_flight == 2:
                self.update()
        self.schedule_one()

    def schedule_one(self):
        world = self.world
        output = world.scheduler.schedule(world.now)
        if output is not None:
            world.executor.launch(output)
        elif world.scheduler.num_in_flight == 0:
            assert world.scheduler.num_requests == 0
        assert world.scheduler.num_in_flight <= 2

    @precondition(lambda self: self.world is not None and self.world.scheduler.num_in_flight)
    @rule()
    def update(self):
        self.world.take(self.world.scheduler.update(self.world.executor.result(), self.world.now))

    @rule(fails=FEW)
    def fail(self, fails):
        if not fails:
            return
        self.world.executor.results.clear()
        self.world.fail()

    def teardown(self):
        while self.world is not None and self.world.scheduler.num_in_flight:
            self.update()
        super().teardown()


@pytest.mark.parametrize("driver", [InOrderMachine, OneAheadMachine, ByHandMachine])
def test_any_sequence_of_calls_keeps_the_promises(make_world, driver):
    run_state_machine_as_test(
        type(driver.__name__, (driver,), {"make_world": staticmethod(make_world)}),
        settings=settings(max_examples=80, stateful_step_count=30, suppress_health_check=list(HealthCheck)),
    )
