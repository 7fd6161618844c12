import itertools

import pytest

from minivllm_scheduler.simulation import (
    ClosedLoop,
    FixedLength,
    GammaArrivals,
    InvalidWorkload,
    MultiTurn,
    PoissonArrivals,
    RequestClass,
    SharedPrefixes,
    SyntheticWorkload,
    UniformLength,
)
from minivllm_scheduler.simulation.traffic import SAMPLED_TOKEN_ID, STOP_TOKEN_ID


def make(num_requests=20, arrivals=None, **options):
    return SyntheticWorkload(
        **{
            "num_requests": num_requests,
            "arrivals": arrivals or PoissonArrivals(2.0),
            "prompt_tokens": UniformLength(5, 50),
            "output_tokens": UniformLength(1, 9),
        }
        | options
    )


def lengths(arrivals):
    return [(len(arrival.request.prompt_token_ids), arrival.request.max_tokens) for arrival in arrivals]


def run(workload, delay_s=1.0):
    """All arrivals, each answered `delay_s` after it came."""
    traffic = workload.start()
    pending = list(traffic.arrivals())
    found = []
    while pending:
        arrival = pending.pop(0)
        found.append(arrival)
        follow_up = traffic.follow_up(arrival.request, arrival.time_s + delay_s)
        if follow_up is not None:
            pending.append(follow_up)
    return found


def test_the_same_seed_gives_the_same_requests_and_another_seed_others():
    first, again, other = (list(make(seed=seed).start().arrivals()) for seed in (1, 1, 2))
    assert first == again
    assert lengths(first) != lengths(other)


def test_another_rate_meets_the_same_requests():
    slow, fast = make(), make(arrivals=GammaArrivals(50.0, 2.0))
    assert lengths(slow.start().arrivals()) == lengths(fast.start().arrivals())


def test_single_requests_have_nothing_in_common():
    arrivals = list(make(50).start().arrivals())
    assert len(arrivals) == len({arrival.request.request_id for arrival in arrivals}) == 50
    ids = [token_id for arrival in arrivals for token_id in arrival.request.prompt_token_ids]
    assert len(set(ids)) == len(ids)
    assert all(arrival.time_s <= after.time_s for arrival, after in itertools.pairwise(arrivals))


def test_sessions_of_a_group_share_exactly_its_prefix():
    workload = make(60, shared_prefixes=SharedPrefixes(3, 40))
    prompts = [tuple(arrival.request.prompt_token_ids) for arrival in workload.start().arrivals()]
    assert len({prompt[:40] for prompt in prompts}) == 3
    assert len({prompt[40] for prompt in prompts}) == 60
    assert all(45 <= len(prompt) <= 90 for prompt in prompts)


def test_turns_repeat_the_conversation_and_add_to_it():
    workload = make(4, multi_turn=MultiTurn(FixedLength(4), think_time_s=2.0), output_tokens=FixedLength(3))
    found = run(workload)
    assert len(found) == 4
    for earlier, later in itertools.pairwise(found):
        history = (*earlier.request.prompt_token_ids, 0, 0, 0)
        assert tuple(later.request.prompt_token_ids[: len(history)]) == history
        assert 5 <= len(later.request.prompt_token_ids) - len(history) <= 50
        assert later.time_s > earlier.time_s + 1.0


def test_num_requests_counts_every_turn():
    assert len(run(make(11, multi_turn=MultiTurn(FixedLength(4))))) == 11
    assert len(run(make(11, arrivals=ClosedLoop(3), multi_turn=MultiTurn(FixedLength(4))))) == 11


def test_a_closed_loop_keeps_as_many_requests_under_way_as_there_are_users():
    workload = make(10, arrivals=ClosedLoop(4))
    assert len(list(workload.start().arrivals())) == 4
    found = run(workload)
    assert [arrival.time_s for arrival in found] == [0.0] * 4 + [1.0] * 4 + [2.0] * 2


def test_users_think_between_their_requests():
    times = [arrival.time_s for arrival in run(make(200, arrivals=ClosedLoop(1, think_time_s=3.0)))]
    pauses = [later - earlier - 1.0 for earlier, later in itertools.pairwise(times)]
    assert min(pauses) >= 0
    assert sum(pauses) / len(pauses) == pytest.approx(3.0, rel=0.25)


def test_more_users_than_requests():
    assert len(run(make(2, arrivals=ClosedLoop(5)))) == 2


def test_answers_end_with_a_stop_id_before_their_limit():
    plain, limited = (list(make(60, max_tokens=limit).start().arrivals()) for limit in (None, 6))
    for without, arrival in zip(plain, limited, strict=True):
        request = arrival.request
        assert arrival.num_output_tokens == min(without.request.max_tokens, 6)
        assert without.stops_after is None
        assert request.max_tokens == 6
        assert (arrival.stops_after is None) == (without.request.max_tokens >= 6)
        assert request.stop_token_ids == (frozenset() if arrival.stops_after is None else {STOP_TOKEN_ID})


def test_a_turn_repeats_an_answer_with_its_stop_id():
    workload = make(2, multi_turn=MultiTurn(FixedLength(2)), output_tokens=FixedLength(3), max_tokens=9)
    first, second = (arrival.request.prompt_token_ids for arrival in run(workload))
    assert tuple(second[len(first) : len(first) + 3]) == (SAMPLED_TOKEN_ID, SAMPLED_TOKEN_ID, STOP_TOKEN_ID)


def test_classes_come_in_their_shares_and_change_nothing_else():
    classes = (RequestClass("chat", 0, 3.0), RequestClass("batch", 5, 1.0))
    plain, classed = (list(make(800, classes=kinds).start().arrivals()) for kinds in ((), classes))
    assert lengths(plain) == lengths(classed)
    kinds = [(arrival.request.tenant, arrival.request.priority) for arrival in classed]
    assert set(kinds) == {("chat", 0), ("batch", 5)}
    assert kinds.count(("chat", 0)) == pytest.approx(600, rel=0.1)


def test_a_conversation_is_of_one_class():
    classes = (RequestClass("a"), RequestClass("b"))
    found = run(make(60, multi_turn=MultiTurn(FixedLength(3)), classes=classes))
    by_first_id = {}
    for arrival in found:
        by_first_id.setdefault(arrival.request.prompt_token_ids[0], set()).add(arrival.request.tenant)
    assert all(len(tenants) == 1 for tenants in by_first_id.values())
    assert set().union(*by_first_id.values()) == {"a", "b"}


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: make(0), "num_requests is 0"),
        (lambda: make(max_tokens=0), "max_tokens is 0"),
        (lambda: RequestClass(share=0.0), "share is 0"),
        (lambda: SharedPrefixes(0, 5), "num_groups is 0"),
        (lambda: SharedPrefixes(5, 0), "num_tokens is 0"),
        (lambda: MultiTurn(FixedLength(1), -1), "think_time_s is -1"),
    ],
)
def test_what_is_no_workload_is_refused_with_field_and_value(build, named):
    with pytest.raises(InvalidWorkload, match=named):
        build()
