from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minivllm_scheduler import (
    COST_AWARE,
    FCFS,
    LEAST_COMPUTED,
    LIFO,
    PRIORITY,
    RESERVE_ALL,
    Arrival,
    InvalidConfig,
    Pool,
    PriorityWithAgeing,
    Request,
    Watermark,
)


class View(NamedTuple):
    """The parts of a RequestView that policies read."""

    num_computed_tokens: int
    num_blocks: int = 1
    num_exclusive_blocks: int = 1
    num_remaining_tokens: int = 1
    num_known_tokens: int = 1
    max_kv_tokens: int = 1
    block_size: int = 4


def request(priority=0):
    return Request(request_id="a", prompt_token_ids=[1], max_tokens=1, priority=priority)


def views(*num_computed_tokens):
    return [View(count) for count in num_computed_tokens]


class TestWaitingOrder:
    def test_fcfs_ranks_all_alike(self):
        assert FCFS(request(3), Arrival(0.0, 0.0)) == FCFS(request(-3), Arrival(9.0, 5.0))

    def test_at_one_time_the_smallest_priority_is_first(self):
        ranks = [PRIORITY(request(priority), Arrival(7.0, 0.0)) for priority in (-3, 0, 3)]
        assert ranks == sorted(set(ranks))

    @given(
        requests=st.tuples(*[st.tuples(st.integers(-5, 5), st.integers(0, 1000))] * 2),
        ageing_s=st.integers(0, 60),
    )
    def test_a_later_request_passes_only_within_the_head_start_of_its_priority(self, requests, ageing_s):
        order = PriorityWithAgeing(ageing_s=float(ageing_s))
        (early, late) = sorted(requests, key=lambda pair: pair[1])
        ranks = [order(request(priority), Arrival(float(time), 0.0)) for priority, time in (early, late)]
        assert (ranks[1] < ranks[0]) == (late[1] - early[1] < (early[0] - late[0]) * ageing_s)

    @pytest.mark.parametrize("ageing_s", [-1.0, float("inf"), float("nan")])
    def test_ageing_is_finite_and_not_negative(self, ageing_s):
        with pytest.raises(InvalidConfig, match=f"ageing_s is {ageing_s}"):
            PriorityWithAgeing(ageing_s=ageing_s)


class TestAdmission:
    def test_the_watermark_is_a_share_of_the_pool_rounded_down(self):
        assert Watermark(0.25)(View(0), [], Pool(num_blocks=11, block_size=4)) == 2

    @pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
    def test_a_share_lies_below_the_whole(self, share):
        with pytest.raises(InvalidConfig, match=f"watermark is {share}"):
            Watermark(share)

    def test_reserving_counts_what_everybody_may_still_take(self):
        candidate = View(0, num_known_tokens=5, max_kv_tokens=17)  # 5 blocks, 2 of them for the known tokens
        running = [View(8, max_kv_tokens=9), View(3, max_kv_tokens=4), View(0, max_kv_tokens=8)]  # 1 + 0 + 2
        assert RESERVE_ALL(candidate, running, Pool(num_blocks=99, block_size=4)) == 3 + 3


class TestVictim:
    def test_lifo_takes_the_last_admitted(self):
        assert LIFO(views(9, 1, 5)) == 2

    def test_least_computed_takes_the_cheapest_and_of_equals_the_last(self):
        assert LEAST_COMPUTED(views(9, 1, 5)) == 1
        assert LEAST_COMPUTED(views(4, 2, 2, 8)) == 2

    @pytest.mark.parametrize(
        ("candidates", "victim"),
        [
            # alike but for how long they would go on holding their blocks
            ([View(8, 2, 2, num_remaining_tokens=9), View(8, 2, 2, num_remaining_tokens=3)], 0),
            # what another request keeps costs nothing, and gives nothing
            ([View(12, 3, 3, num_remaining_tokens=5), View(12, 3, 0, num_remaining_tokens=9)], 0),
            # a last block with one token in it is a cheap one
            ([View(8, 2, 2, num_remaining_tokens=5), View(5, 2, 2, num_remaining_tokens=5)], 1),
            ([View(9, 3, 1, num_remaining_tokens=5), View(8, 2, 2, num_remaining_tokens=5)], 0),
            # equals: the last admitted
            ([View(8, 2, 2)] * 3, 2),
            ([View(8, 2, 0)] * 3, 2),
        ],
    )
    def test_cost_aware_weighs_the_loss_against_the_room(self, candidates, victim):
        assert COST_AWARE(candidates) == victim
