"""Examples of each promise of the scheduler; test_scheduler_stateful.py searches for what breaks them."""

import gc
import os
import subprocess
import sys

import pytest

from minivllm_kvcache import KVCacheManager
from minivllm_scheduler import (
    COST_AWARE,
    LEAST_COMPUTED,
    PRIORITY,
    RESERVE_ALL,
    DuplicateRequest,
    FairShare,
    FinishReason,
    PriorityWithAgeing,
    QueueFull,
    Request,
    RequestTooLarge,
    Scheduler,
    SchedulerConfig,
    StepResult,
    UnexpectedResult,
)


def admissions(world):
    return [admitted.request_id for output in world.executor.outputs for admitted in output.admitted]


def rows_of(world, request_id):
    return [row for output in world.executor.outputs for row in output.rows if row.request_id == request_id]


class TestPrefixHits:
    """C01, C03: what a hit may cover, and from when on."""

    def test_a_prompt_seen_before_still_computes_its_last_token(self, make_world, run_ahead):
        world = make_world(16, run_ahead=run_ahead)
        for name, prompt in (("first", range(1, 9)), ("again", range(1, 9)), ("longer", range(1, 10))):
            world.add(name, prompt, 2)
            world.drain()
        assert world.num_cached_tokens == {"first": 0, "again": 4, "longer": 8}
        assert rows_of(world, "again")[0].num_tokens == 4
        assert world.outputs["again"] == world.outputs["first"]

    @pytest.mark.parametrize("num_tokens", range(1, 14))
    def test_a_hit_is_whole_blocks_of_all_known_ids_but_one(self, make_world, num_tokens):
        world = make_world(16)
        for name in ("first", "again"):
            world.add(name, range(num_tokens), 3)
            world.drain()
        assert world.num_cached_tokens["again"] == (num_tokens - 1) // 4 * 4

    @pytest.mark.parametrize("max_num_batched_tokens", [64, 8])
    @pytest.mark.parametrize("abort_first", [False, True])
    def test_nothing_is_hit_before_the_step_that_writes_it_was_updated(
        self, make_world, run_ahead, max_num_batched_tokens, abort_first
    ):
        world = make_world(16, run_ahead=run_ahead, max_num_batched_tokens=max_num_batched_tokens)
        world.add("first", (1, 2, 3, 4, 5, 0, 1, 2, 20), 4)
        world.add("second", (1, 2, 3, 4, 5, 0, 1, 2, 30), 4)
        output = world.scheduler.schedule(world.now)
        if abort_first:
            world.abort("first")
        world.executor.launch(output)
        world.take(world.scheduler.update(world.executor.result(), world.now))
        world.drain()
        same_step = {admitted.num_cached_tokens for admitted in output.admitted}
        assert same_step == {0}
        assert world.num_cached_tokens["second"] == (0 if abort_first or max_num_batched_tokens == 64 else 8)

    def test_an_aborted_request_leaves_no_block_that_was_only_scheduled(self, make_world):
        world = make_world(16)
        world.add("aborted", range(8), 4)
        world.executor.launch(world.scheduler.schedule(world.now))
        world.abort("aborted")
        world.take(world.scheduler.update(world.executor.result(), world.now))
        world.add("next", range(8), 4)
        world.drain()
        assert world.num_cached_tokens["next"] == 0

    def test_the_salt_and_the_wish_not_to_read_keep_requests_apart(self, make_world):
        world = make_world(32)
        for name, options in (
            ("plain", {}),
            ("salted", {"cache_salt": "pepper"}),
            ("unread", {"reads_prefix_cache": False}),
            ("hit", {}),
        ):
            world.add(name, range(9), 2, **options)
            world.drain()
        assert world.num_cached_tokens == {"plain": 0, "salted": 0, "unread": 0, "hit": 8}

    def test_a_finished_output_is_a_prefix_for_the_next_turn(self, make_world):
        world = make_world(32)
        world.add("turn", range(6), 7)
        world.drain()
        world.add("next", (*range(6), *world.outputs["turn"], 9), 2)
        world.drain()
        assert world.num_cached_tokens["next"] == 12


class TestSiblings:
    def test_choices_of_a_prompt_compute_it_once(self, make_world, run_ahead):
        world = make_world(64, run_ahead=run_ahead, max_num_batched_tokens=8)
        for name in ("a", "b", "c"):
            world.add(name, range(21), 3, group="g")
        world.drain()
        assert world.num_cached_tokens == {"a": 0, "b": 20, "c": 20}

    def test_others_do_not_wait_for_a_leader(self, make_world):
        world = make_world(64, max_num_batched_tokens=8)
        world.add("a", range(12), 3, group="g")
        world.add("b", range(12), 3, group="g")
        world.add("other", range(20, 24), 3)
        world.drain()
        assert admissions(world) == ["a", "other", "b"]

    @pytest.mark.parametrize("steps_before", [0, 1])
    def test_the_next_sibling_leads_when_the_leader_ends_first(self, make_world, run_ahead, steps_before):
        world = make_world(64, run_ahead=run_ahead, max_num_batched_tokens=8)
        for name in ("a", "b", "c"):
            world.add(name, range(21), 3, group="g")
        for _ in range(steps_before):
            world.step()
        world.abort("a")
        world.drain()
        assert admissions(world)[-2:] == ["b", "c"]
        assert world.num_cached_tokens["c"] == 20

    def test_aborting_a_held_sibling_leaves_the_rest(self, make_world):
        world = make_world(64)
        for name in ("a", "b", "c"):
            world.add(name, range(9), 3, group="g")
        world.abort("b")
        world.drain()
        assert set(world.finish_reasons) == {"a", "c"}


class TestNeverFits:
    """C05: "never" is refused at once, "not now" is served in the end."""

    @pytest.mark.parametrize(("num_prompt", "max_tokens", "needed"), [(9, 1, 9), (8, 4, 11), (1, 9, 9)])
    def test_more_than_the_pool_is_refused_with_the_numbers(self, make_world, num_prompt, max_tokens, needed):
        world = make_world(2)
        with pytest.raises(RequestTooLarge) as refusal:
            world.add("large", range(num_prompt), max_tokens)
        error = refusal.value
        assert (error.num_prompt_tokens, error.max_tokens) == (num_prompt, max_tokens)
        assert (error.num_needed_tokens, error.limit_tokens, error.limited_by) == (needed, 8, "pool")
        world.add("follower", [1], 1)
        world.drain()

    def test_more_than_the_context_is_refused_with_the_numbers(self, make_world):
        world = make_world(64, max_model_len=10)
        with pytest.raises(RequestTooLarge) as refusal:
            world.add("long", range(8), 3)
        error = refusal.value
        assert (error.num_needed_tokens, error.limit_tokens, error.limited_by) == (11, 10, "context")
        world.add("follower", range(8), 2)
        world.drain()

    @pytest.mark.parametrize(("num_prompt", "max_tokens"), [(8, 1), (7, 2), (1, 8)])
    def test_what_fills_the_pool_exactly_finishes(self, make_world, run_ahead, num_prompt, max_tokens):
        world = make_world(2, run_ahead=run_ahead)
        world.add("exact", range(num_prompt), max_tokens)
        world.add("follower", [1], 1)
        world.drain()
        assert len(world.outputs["exact"]) == max_tokens
        assert world.finish_reasons["follower"] is FinishReason.LENGTH

    def test_a_prompt_above_the_budget_is_chunked(self, make_world, run_ahead):
        world = make_world(8, run_ahead=run_ahead, max_num_seqs=4, max_num_batched_tokens=4)
        world.add("chunked", range(10), 2)
        world.add("follower", [1], 1)
        world.drain()
        assert [row.num_tokens for row in rows_of(world, "chunked")] == [4, 4, 2, 1]
        assert [row.samples for row in rows_of(world, "chunked")] == [False, False, True, True]

    def test_the_watermark_does_not_hold_back_a_request_that_is_alone(self, make_world):
        world = make_world(4, watermark=0.9)
        world.add("alone", range(12), 5)
        world.add("next", range(12), 5)
        world.drain()
        assert admissions(world) == ["alone", "next"]
        assert world.num_preemptions == 0


class TestWatermark:
    @pytest.mark.parametrize(
        ("watermark", "admitted_at_once"), [(0.0, ["first", "second"]), (0.3, ["first"])]
    )
    def test_an_admission_leaves_room_for_the_running_to_grow(self, make_world, watermark, admitted_at_once):
        world = make_world(10, watermark=watermark)
        world.add("first", range(16), 4, cache_salt="first")
        world.add("second", range(16), 4, cache_salt="second")
        world.step()
        assert admissions(world) == admitted_at_once
        world.drain()
        assert admissions(world) == ["first", "second"]

    def test_a_prompt_is_not_begun_before_all_of_it_fits(self, make_world):
        world = make_world(10, watermark=0.0, max_num_batched_tokens=24)
        world.add("first", range(16), 8, cache_salt="first")
        world.add("second", range(28), 4, cache_salt="second")
        while not world.finish_reasons:
            assert admissions(world) in ([], ["first"])
            world.step()
        world.drain()
        assert world.num_preemptions == 0


class TestAdd:
    def test_all_or_none(self, make_world):
        world = make_world(8)
        fits = Request(request_id="fits", prompt_token_ids=[1], max_tokens=1)
        too_large = Request(request_id="large", prompt_token_ids=range(40), max_tokens=1)
        with pytest.raises(RequestTooLarge):
            world.add_all([fits, too_large])
        with pytest.raises(DuplicateRequest, match="'fits'"):
            world.add_all([fits, fits])
        assert world.scheduler.num_requests == 0

    def test_a_full_queue_names_its_limit(self, make_world):
        world = make_world(8, max_num_seqs=1, max_num_waiting=3)
        world.add("running", [1], 9)
        world.step()
        for name in ("a", "b"):
            world.add(name, [1], 1, group="g")
        both = [Request(request_id=name, prompt_token_ids=[1], max_tokens=1) for name in ("c", "d")]
        with pytest.raises(QueueFull, match="2 requests wait and 2 more exceed the limit of 3"):
            world.add_all(both)
        world.add_all(both[:1])
        assert world.scheduler.stats().num_waiting == 3

    def test_free_places_count_before_the_limit_of_the_queue(self, make_world):
        world = make_world(8, max_num_seqs=3, max_num_waiting=2)
        world.add("running", [1], 9)
        world.step()
        burst = [Request(request_id=str(i), prompt_token_ids=[1], max_tokens=1) for i in range(5)]
        with pytest.raises(QueueFull, match="0 requests wait and 5 more exceed the limit of 4"):
            world.add_all(burst)
        world.add_all(burst[:4])
        assert world.scheduler.stats().num_waiting == 4

    def test_an_id_can_be_used_again_once_its_request_has_ended(self, make_world, run_ahead):
        world = make_world(8, run_ahead=run_ahead)
        world.add("a", [1, 2, 3], 8)
        with pytest.raises(DuplicateRequest):
            world.add("a", [1], 1)
        for _ in range(3):
            world.step()
        world.abort("a")
        world.add("a", [4, 5], 3)
        world.drain()
        assert len(world.outputs["a"]) == 3


class TestRoom:
    """C06, C08: blocks run out."""

    def test_the_only_running_request_grows_to_the_last_block(self, make_world, run_ahead):
        world = make_world(2, run_ahead=run_ahead)
        with pytest.raises(RequestTooLarge):
            world.add("too long", range(8), 8)
        world.add("only", range(4), 5)
        world.add("next", [1, 2], 2)
        world.drain()
        assert admissions(world).count("only") == 1
        assert set(world.finish_reasons) == {"only", "next"}

    @pytest.mark.parametrize("policies", [{}, {"victim": LEAST_COMPUTED}, {"victim": COST_AWARE}])
    @pytest.mark.parametrize("num_blocks", [5, 6, 7])
    def test_preemption_changes_no_id_and_no_count(self, make_world, run_ahead, num_blocks, policies):
        world = make_world(num_blocks, run_ahead=run_ahead, watermark=0.0, **policies)
        for index in range(4):
            world.add(f"r{index}", [index, *range(5)], 14)
        world.drain()
        assert world.num_preemptions > 0
        assert set(world.finish_reasons.values()) == {FinishReason.LENGTH}
        resumed = [admitted for output in world.executor.outputs for admitted in output.admitted]
        assert {admitted.num_prompt_tokens for admitted in resumed} == {6}
        assert any(len(admitted.token_ids) > 6 for admitted in resumed)
        assert world.num_cached_tokens == {f"r{index}": 0 for index in range(4)}

    def test_the_youngest_goes_first_and_the_oldest_never(self, make_world, run_ahead):
        world = make_world(6, run_ahead=run_ahead, watermark=0.0)
        for name in ("oldest", "middle", "youngest"):
            world.add(name, [1, 2, 3, 4, 5], 12, cache_salt=name)
        world.drain()
        preempted = [name for output in world.executor.outputs for name in output.released]
        assert preempted[0] == "youngest"
        assert admissions(world).count("oldest") == 1

    def test_a_preempted_request_comes_back_before_those_that_never_ran(self, make_world):
        world = make_world(6, watermark=0.0, max_num_seqs=3)
        for name in ("a", "b", "c", "d"):
            world.add(name, [1, 2, 3, 4, 5], 12, cache_salt=name)
        world.drain()
        assert admissions(world).index("d") > max(
            index for index, name in enumerate(admissions(world)) if name in {"b", "c"}
        )

    def test_an_id_that_arrives_for_a_preempted_request_is_kept(self, make_world):
        world = make_world(4, watermark=0.0, run_ahead=True)
        world.add("old", [1, 2, 3, 4], 9, cache_salt="old")
        world.add("young", [1, 2, 3], 8, cache_salt="young")
        while not world.num_preemptions:
            seen = world.outputs["young"]
            world.step()
        preempting = world.executor.outputs[-1]
        assert preempting.released == ("young",)
        assert [row.request_id for row in world.executor.outputs[-2].rows] == ["old", "young"]
        assert len(world.outputs["young"]) == len(seen) + 1
        world.drain()
        resumed = next(
            admitted
            for output in world.executor.outputs[preempting.step_id :]
            for admitted in output.admitted
            if admitted.request_id == "young"
        )
        assert len(resumed.token_ids) == 3 + len(seen) + 1

    @pytest.mark.parametrize("ending", ["stop", "length"])
    def test_a_preempted_request_ends_if_the_id_that_arrives_ends_it(self, make_world, ending):
        probe = make_world(64)
        probe.add("young", [3, 2, 1], 5)
        probe.drain()
        *before, last = probe.outputs["young"]
        assert last not in before, "the probe's last id must be usable as a stop id"
        world = make_world(4, watermark=0.0, run_ahead=True)
        world.add("old", [1, 2, 3, 4], 9, cache_salt="old")
        if ending == "stop":
            world.add("young", [3, 2, 1], 8, cache_salt="young", stop_token_ids=frozenset({last}))
        else:
            world.add("young", [3, 2, 1], 5, cache_salt="young")
        while not world.num_preemptions:
            world.step()
        assert world.finish_reasons["young"] == ending
        world.drain()
        assert admissions(world) == ["old", "young"]

    def test_nobody_is_admitted_while_a_running_request_lacks_room(self, make_world):
        world = make_world(14, 1, watermark=0.0, max_num_batched_tokens=16, prefill_chunk_size=4)
        world.add("oldest", [1], 8, cache_salt="a")
        world.add("needs four blocks", [*range(6), *range(6)], 2, cache_salt="b")
        world.add("victim", [1], 8, cache_salt="c")
        for _ in range(3):
            world.step()
        step = world.executor.outputs[-1]
        assert world.kv.num_allocatable == 3
        assert ([row.request_id for row in step.rows], step.released) == (["oldest"], ("victim",))
        world.drain()

    def test_a_preempted_request_does_not_come_back_while_an_id_of_it_is_unknown(self, make_world):
        world = make_world(13, 1, watermark=0.0, max_num_batched_tokens=16, prefill_chunk_size=4)
        scheduler, executor = world.scheduler, world.executor
        world.add("last token in flight", [1], 2, cache_salt="a")
        world.add("needs four blocks", [*range(6), *range(6)], 2, cache_salt="c")
        world.add("victim", [1], 8, cache_salt="d")
        executor.launch(scheduler.schedule(0.0))
        executor.launch(scheduler.schedule(0.0))
        world.take(scheduler.update(executor.result(), 0.0))
        assert scheduler.schedule(0.0) is None
        assert world.num_preemptions == 1
        world.abort("needs four blocks")
        assert scheduler.schedule(0.0) is None
        world.take(scheduler.update(executor.result(), 0.0))
        assert scheduler.schedule(0.0).admitted[0].token_ids == (1, *world.outputs["victim"])
        assert len(world.outputs["victim"]) == 2


class TestFairness:
    """C09: no starvation in either direction."""

    def test_a_decode_gets_its_token_in_every_step_beside_a_stream_of_prompts(self, make_world, run_ahead):
        world = make_world(200, run_ahead=run_ahead, max_num_batched_tokens=16, max_model_len=128)
        world.add("decode", [1], 60)
        world.step()
        for index in range(50):
            world.add(f"p{index:02}", [index % 6] * 16, 1, cache_salt=str(index))
            world.step()
        steps = world.executor.outputs[1:51]
        assert len(steps) == 50
        assert all("decode" in {row.request_id for row in output.rows} for output in steps)
        prompts = admissions(world)[1:]
        assert prompts == sorted(prompts)
        assert len(prompts) >= 50 * 15 // 16

    def test_a_long_prompt_leaves_a_token_to_every_running_request(self, make_world):
        world = make_world(64, max_num_seqs=3, max_num_batched_tokens=3, prefill_chunk_size=2)
        world.add("every second step", [1], 8, runs_ahead=False)
        world.add("long", range(20), 2)
        world.add("short", [1], 8)
        steps = []
        for _ in range(4):
            steps.append(world.scheduler.schedule(world.now))
            world.executor.launch(steps[-1])
            if world.scheduler.num_in_flight == 2:
                world.take(world.scheduler.update(world.executor.result(), world.now))
        assert [{row.request_id: row.num_tokens for row in step.rows} for step in steps] == [
            {"every second step": 1, "long": 2},
            {"long": 2, "short": 1},
            {"every second step": 1, "long": 1, "short": 1},
            {"long": 2, "short": 1},
        ]

    def test_a_large_request_at_the_head_is_not_overtaken_for_ever(self, make_world):
        world = make_world(8)
        world.add("first", range(8), 8, cache_salt="first")
        world.step()
        world.add("large", range(24), 8, cache_salt="large")
        for index in range(20):
            world.add(f"small{index}", [1], 4)
        world.drain()
        assert admissions(world)[:2] == ["first", "large"]

    def test_priority_goes_before_arrival(self, make_world):
        world = make_world(64, max_num_seqs=1, order=PRIORITY)
        for name, priority in (("late", 1), ("later", 2), ("urgent", 0)):
            world.add(name, [1], 2, priority=priority)
        world.drain()
        assert admissions(world) == ["urgent", "late", "later"]

    @pytest.mark.parametrize("ageing_s", [5.0, 20.0])
    def test_with_ageing_a_stream_of_urgent_requests_does_not_starve_the_rest(self, make_world, ageing_s):
        world = make_world(64, max_num_seqs=1, order=PriorityWithAgeing(ageing_s=ageing_s))
        world.add("patient", [1], 1, priority=2)
        for index in range(60):
            world.add(f"urgent{index:02}", [1], 1)
            world.step()
        assert admissions(world).index("patient") == 2 * ageing_s

    def test_no_order_lets_newcomers_pass_the_oldest_more_often_than_allowed(self, make_world):
        newest_first = iter(range(0, -100, -1))
        world = make_world(64, max_num_seqs=1, max_overtaking=7, order=lambda *_: next(newest_first))
        for index in range(40):
            world.add(f"r{index:02}", [1], 1)
            world.add(f"s{index:02}", [1], 1)
            world.step()
        assert admissions(world)[7::8] == ["r00", "r01", "r02", "r03", "r04"]

    def test_a_tenant_that_floods_the_queue_delays_another_by_one_request(self, make_world):
        world = make_world(64, max_num_seqs=1, order=FairShare())
        for index in range(20):
            world.add(f"flood{index}", [1], 2, tenant="flood")
        world.step()
        for index in range(5):
            world.add(f"other{index}", [1], 2, tenant="other")
        world.drain()
        served = [name.rstrip("0123456789") for name in admissions(world)]
        assert served[:11] in (
            ["flood", *["other", "flood"] * 5],
            ["flood", "flood", *["other", "flood"] * 4, "other"],
        )


class TestPolicies:
    def test_with_everything_reserved_nobody_is_preempted(self, make_world, run_ahead):
        preemptions = []
        for admission in (None, RESERVE_ALL):
            world = make_world(12, run_ahead=run_ahead, watermark=0.0, admission=admission)
            for index in range(8):
                world.add(f"r{index}", [index % 6] * 5, 12, cache_salt=str(index))
            world.drain()
            preemptions.append(world.num_preemptions)
        assert preemptions[0] > preemptions[1] == 0

    def test_an_admission_that_always_refuses_still_serves_one_at_a_time(self, make_world, run_ahead):
        world = make_world(64, run_ahead=run_ahead, admission=lambda *_: 65)
        for name in ("a", "b", "c"):
            world.add(name, [1, 2], 3)
        world.drain()
        assert admissions(world) == ["a", "b", "c"]
        assert {len(output.rows) for output in world.executor.outputs} == {1}

    def test_faults_are_counted_and_change_no_token(self, make_world, run_ahead):
        def broken(*_):
            raise ZeroDivisionError

        world = make_world(
            6, run_ahead=run_ahead, watermark=0.0, order=broken, victim=broken, admission=broken
        )
        for index in range(4):
            world.add(f"r{index}", [index, *range(5)], 14)
        world.drain()
        assert world.num_preemptions > 0
        assert world.scheduler.stats().total_policy_faults > 4 + world.num_preemptions

    def test_cost_aware_spares_what_is_about_to_end(self, make_world):
        world = make_world(8, watermark=0.0, victim=COST_AWARE)
        for name, max_tokens in (("oldest", 14), ("long", 14), ("almost done", 8)):
            world.add(name, [1, 2, 3, 4, 5, 0], max_tokens, cache_salt=name)
        world.drain()
        assert admissions(world).count("long") > 1
        assert admissions(world).count("almost done") == 1


class TestAbort:
    """C11: in every state, and nobody else notices."""

    @pytest.mark.parametrize(
        "state", ["waiting", "between chunks", "running", "preempted", "finishing", "finished"]
    )
    def test_everything_is_freed_and_the_neighbour_goes_on(self, make_world, run_ahead, state):
        world = make_world(6, run_ahead=run_ahead, watermark=0.0, max_num_seqs=4, max_num_batched_tokens=8)
        world.add("neighbour", [1, 2, 3, 4, 5], 16, cache_salt="neighbour")
        world.step()
        prompt = [2, 3, 4] if state == "finishing" else [2, 3, 4, 5, 0, 1, 2, 3, 4]
        world.add("aborted", prompt, 1 if state == "finished" else 9)
        reached = {
            "waiting": lambda: True,
            "between chunks": lambda: len(rows_of(world, "aborted")) == 1,
            "running": lambda: len(world.outputs["aborted"]) == 2,
            "preempted": lambda: world.num_preemptions == 1,
            "finishing": lambda: len(world.outputs["aborted"]) == 8,
            "finished": lambda: "aborted" in world.finish_reasons,
        }[state]
        for _ in range(20):
            if reached():
                break
            world.step()
        assert reached()
        if state == "finishing" and not run_ahead:
            world.executor.launch(world.scheduler.schedule(world.now))
            assert world.abort("aborted")
            world.take(world.scheduler.update(world.executor.result(), world.now))
        else:
            assert world.abort("aborted") == (state != "finished")
        seen = world.outputs["aborted"]
        world.scheduler.check_invariants()
        assert not world.abort("aborted")
        world.drain()
        assert world.outputs["aborted"] == seen
        assert len(world.outputs["neighbour"]) == 16

    def test_an_unknown_id_is_no_error(self, make_world):
        assert not make_world(4).abort("nobody")


class TestOneStepAhead:
    def test_at_most_two_steps_are_outstanding(self, make_world):
        world = make_world(16)
        world.add("a", [1, 2], 8)
        assert world.scheduler.schedule(0.0) is not None
        assert world.scheduler.schedule(0.0) is not None
        assert world.scheduler.schedule(0.0) is None
        assert world.scheduler.num_in_flight == 2

    def test_nothing_is_computed_past_max_tokens(self, make_world):
        world = make_world(16, run_ahead=True)
        world.add("a", [1, 2], 3)
        world.drain()
        assert [(row.start, row.num_tokens) for row in rows_of(world, "a")] == [(0, 2), (2, 1), (3, 1)]

    def test_what_was_computed_past_a_stop_id_is_dropped(self, make_world):
        world = make_world(16, run_ahead=True)
        world.add("probe", [1, 2], 4)
        world.drain()
        stop_id = world.outputs["probe"][1]
        expected = world.outputs["probe"][: world.outputs["probe"].index(stop_id) + 1]
        world.add("stops", [1, 2], 8, stop_token_ids=frozenset({stop_id}))
        world.drain()
        assert world.outputs["stops"] == expected
        assert world.finish_reasons["stops"] is FinishReason.STOP
        assert len(rows_of(world, "stops")) == len(expected) + 1

    def test_a_stop_id_at_max_tokens_is_a_stop(self, make_world, run_ahead):
        world = make_world(16, run_ahead=run_ahead)
        world.add("probe", [3, 1], 1)
        world.drain()
        world.add("both", [3, 1], 1, stop_token_ids=frozenset(world.outputs["probe"]))
        world.drain()
        assert world.finish_reasons == {"probe": FinishReason.LENGTH, "both": FinishReason.STOP}

    def test_a_request_that_may_not_run_ahead_waits_for_its_id(self, make_world):
        world = make_world(16)
        world.add("grammar", [1, 2], 4, runs_ahead=False)
        world.add("free", [2, 1], 4)
        first = world.scheduler.schedule(0.0)
        second = world.scheduler.schedule(0.0)
        assert [row.request_id for row in first.rows] == ["grammar", "free"]
        assert [row.request_id for row in second.rows] == ["free"]


class TestUpdate:
    @pytest.mark.parametrize(
        "result",
        [
            StepResult(1, ((1,), (2,))),
            StepResult(0, ((1,),)),
            StepResult(0, ((1,), (2,), (3,))),
            StepResult(0, ((1,), ())),
            StepResult(0, ((1, 2), ())),
            StepResult(0, ((1,), (-1,))),
            StepResult(0, ((1,), (2**32,))),
        ],
    )
    def test_a_wrong_result_is_refused_and_changes_nothing(self, make_world, result):
        world = make_world(16)
        world.add("a", [1, 2], 4)
        world.add("b", [1, 2], 4)
        world.executor.launch(world.scheduler.schedule(0.0))
        before = world.scheduler.stats()
        with pytest.raises(UnexpectedResult):
            world.scheduler.update(result, 0.0)
        assert world.scheduler.stats() == before
        world.take(world.scheduler.update(world.executor.result(), 0.0))
        world.drain()

    def test_a_result_without_a_step_is_refused(self, make_world):
        with pytest.raises(UnexpectedResult, match="no step is in flight"):
            make_world(4).scheduler.update(StepResult(0, ()), 0.0)


class TestFail:
    def test_requests_without_a_row_in_flight_survive(self, make_world):
        world = make_world(16, max_num_seqs=2)
        for name in ("a", "b", "c"):
            world.add(name, [1, 2], 4)
        world.executor.launch(world.scheduler.schedule(0.0))
        world.executor.results.clear()
        assert world.fail() == ("a", "b")
        world.drain()
        assert set(world.finish_reasons) == {"c"}

    def test_releases_of_a_step_that_never_ran_are_told_again(self, make_world):
        world = make_world(16)
        world.add("ended", [1, 2], 1)
        world.step()
        world.add("failed", [1, 2], 4)
        assert world.scheduler.schedule(0.0).released == ("ended",)
        world.fail()
        world.add("next", [1, 2], 1)
        assert world.scheduler.schedule(0.0).released == ("ended", "failed")

    def test_nothing_in_flight_is_nothing_to_fail(self, make_world):
        world = make_world(4)
        world.add("a", [1], 1)
        assert world.fail() == ()
        world.drain()


class TestStats:
    def test_sizes_and_totals(self, make_world):
        world = make_world(16, max_num_seqs=1)
        for name in ("a", "b", "c"):
            world.add(name, [1, 2, 3], 2)
        world.step()
        stats = world.scheduler.stats()
        assert (stats.num_running, stats.num_waiting, stats.num_in_flight) == (1, 2, 0)
        assert (stats.total_steps, stats.total_scheduled_tokens, stats.total_preempted) == (1, 3, 0)

    def test_the_oldest_wait_is_that_of_the_longest_known_request(self, make_world):
        world = make_world(16, max_num_seqs=1)
        assert world.scheduler.stats().oldest_wait_s == 0
        for arrival, name in enumerate(("runs", "waits", "waits less")):
            world.now = float(arrival)
            world.add(name, [1, 2, 3], 9)
        world.scheduler.schedule(7.5)
        assert world.scheduler.stats().oldest_wait_s == 6.5


class TestCost:
    """What a decode step costs, in calls of functions: exact on any machine, and the time goes with it."""

    @staticmethod
    def calls_in_a_step(num_requests, num_blocks):
        config = SchedulerConfig(
            max_num_seqs=num_requests,
            max_num_batched_tokens=16 * num_requests,
            max_model_len=64,
            max_num_waiting=num_requests,
        )
        scheduler = Scheduler(config, KVCacheManager(num_blocks, 4))
        scheduler.add(
            [
                Request(request_id=str(i), prompt_token_ids=range(i, i + 8 + i % 4), max_tokens=9)
                for i in range(num_requests)
            ],
            0.0,
        )
        result = StepResult(scheduler.schedule(0.0).step_id, ((1,),) * num_requests)
        scheduler.update(result, 0.0)
        calls = []
        gc.disable()  # others may listen to it, with functions of their own
        sys.setprofile(lambda _, event, called: calls.append(called) if event.endswith("call") else None)
        try:
            output = scheduler.schedule(0.0)
            scheduler.update(StepResult(output.step_id, result.token_ids), 0.0)
        finally:
            sys.setprofile(None)
            gc.enable()
        assert len(output.rows) == num_requests
        return len(calls)

    def test_it_does_not_depend_on_the_size_of_the_pool(self):
        assert self.calls_in_a_step(64, num_blocks=1000) == self.calls_in_a_step(64, num_blocks=100_000)

    def test_it_grows_linearly_with_the_number_of_requests(self):
        calls = [self.calls_in_a_step(num_requests, num_blocks=4000) for num_requests in (64, 128, 192)]
        assert calls[1] - calls[0] == calls[2] - calls[1]

    def test_stats_cost_the_same_however_many_wait(self):
        def calls_in_stats(num_waiting):
            config = SchedulerConfig(
                max_num_seqs=1, max_num_batched_tokens=4, max_model_len=9, max_num_waiting=999
            )
            scheduler = Scheduler(config, KVCacheManager(9, 4))
            options = {"prompt_token_ids": [1, 2], "max_tokens": 2}
            for i in range(num_waiting):
                scheduler.add([Request(request_id=f"{i}{c}", group=f"g{i}", **options) for c in "ab"], 0.0)
            calls = []
            sys.setprofile(lambda _, event, called: calls.append(called) if event.endswith("call") else None)
            try:
                stats = scheduler.stats()
            finally:
                sys.setprofile(None)
            assert stats.num_waiting == 2 * num_waiting
            return len(calls)

        assert calls_in_stats(2) == calls_in_stats(200)


RUN = """
import zlib
from minivllm_kvcache import KVCacheManager
from minivllm_scheduler import Request, Scheduler, SchedulerConfig, StepLoop, StepResult

class Executor:
    def __init__(self): self.log, self.results = [], []
    def launch(self, output):
        self.log.append(output)
        ids = tuple((zlib.crc32(repr(row).encode()) % 7,) for row in output.rows if row.samples)
        self.results.append(StepResult(output.step_id, ids))
    def result(self): return self.results.pop(0)

config = SchedulerConfig(max_num_seqs=6, max_num_batched_tokens=12, max_model_len=64, max_num_waiting=50)
scheduler, executor = Scheduler(config, KVCacheManager(12, 4)), Executor()
loop = StepLoop(scheduler, executor, run_ahead=True)
for i in range(20):
    options = dict(prompt_token_ids=[i % 3] * (i % 9 + 1), max_tokens=9, stop_token_ids=frozenset({3, 5}))
    scheduler.add([Request(request_id=f"{i}-{j}", group=f"g{i}", **options) for j in range(2)], 0.0)
    scheduler.abort(f"{i - 2}-1", 0.0)
    executor.log.append(loop.step(0.0))
while loop.has_work: executor.log.append(loop.step(0.0))
assert scheduler.stats().total_preempted
print(executor.log)
"""


def test_the_same_calls_give_the_same_outputs_under_any_hash_seed():
    logs = {
        subprocess.run(
            [sys.executable, "-c", RUN],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(logs) == 1
    assert "ScheduledRequest" in logs.pop()


def test_a_range_is_a_prompt_that_costs_no_memory():
    kv = KVCacheManager(1000, 16)
    config = SchedulerConfig(
        max_num_seqs=1, max_num_batched_tokens=16000, max_model_len=16000, max_num_waiting=1
    )
    scheduler = Scheduler(config, kv)
    prompt = range(10_000)
    scheduler.add([Request(request_id="a", prompt_token_ids=prompt, max_tokens=1)], 0.0)
    assert scheduler.schedule(0.0).admitted[0].token_ids == prompt
