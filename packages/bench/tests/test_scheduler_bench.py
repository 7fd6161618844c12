import gc

import pytest

from minivllm_bench.scheduler_bench import Stopwatch, bytes_per_block, measure_calls, measure_steps


def test_a_stopwatch_returns_what_the_call_returns_and_keeps_its_time():
    watch = Stopwatch()
    assert watch.time("sum", lambda: sum(range(100))) == 4950
    assert watch.names() == ("sum",)
    assert watch.percentile_us("sum", 50) > 0


@pytest.mark.parametrize("running", [1, 20])
def test_every_request_runs_in_every_step(running):
    cost = measure_steps(running, num_steps=40)
    assert cost.running == running
    assert 0 < cost.schedule_us <= cost.schedule_p99_us
    assert 0 < cost.update_us <= cost.update_p99_us


def test_the_pool_is_as_large_as_it_was_asked_for_or_as_the_requests_need():
    assert measure_steps(3, num_steps=20, num_blocks=500).num_blocks == 500
    assert measure_steps(3, num_steps=20).num_blocks == 3 * 13  # 128 + 16 · 2 + 16 + 20 tokens and a block


def test_each_call_is_measured():
    costs = measure_calls(num_calls=20, num_blocks=40)
    assert [cost.call for cost in costs] == [
        "allocate 8 blocks",
        "grow by a block",
        "commit 8 blocks",
        "free 9 blocks",
        "match a new prompt",
        "match it again",
    ]
    assert all(0 < cost.us <= cost.p99_us and cost.num_blocks == 40 for cost in costs)


def test_measuring_leaves_the_collector_as_it_was():
    frozen = gc.get_freeze_count()
    measure_steps(2, num_steps=5)
    assert gc.get_freeze_count() == frozen


def test_a_block_takes_an_object_with_five_fields_and_a_place_in_a_list():
    assert 60 < bytes_per_block(20_000) < 200
