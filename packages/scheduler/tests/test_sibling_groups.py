import pytest

from minivllm_scheduler import Request
from minivllm_scheduler.request import RequestState, RequestStatus
from minivllm_scheduler.sibling_groups import SiblingGroups


def member(name, group="g", arrival=0):
    request = Request(request_id=name, prompt_token_ids=[1, 2], max_tokens=1, group=group)
    return RequestState(request, block_size=4, arrival=arrival, now=0.0)


@pytest.fixture
def family():
    groups = SiblingGroups()
    states = [member(name) for name in "abc"]
    assert [groups.enter(state) for state in states] == [True, False, False]
    groups.check_invariants()
    return groups, states


def test_a_request_without_a_group_is_never_held():
    groups = SiblingGroups()
    alone = member("alone", group=None)
    assert groups.enter(alone)
    assert groups.prompt_committed(alone) == groups.leave(alone) == ()


def test_siblings_are_held_until_the_leader_s_prompt_is_committed(family):
    groups, (a, b, c) = family
    assert (groups.num_held, b.status) == (2, RequestStatus.HELD)
    assert groups.prompt_committed(a) == (b, c)
    assert (groups.num_held, b.status) == (0, RequestStatus.WAITING)
    assert groups.prompt_committed(a) == ()
    assert groups.enter(member("later"))
    groups.check_invariants()


def test_the_longest_held_leads_when_the_leader_ends(family):
    groups, (a, b, c) = family
    assert groups.leave(a) == (b,)
    groups.check_invariants()
    assert groups.prompt_committed(b) == (c,)


def test_a_held_sibling_may_end(family):
    groups, (a, b, c) = family
    b.status = RequestStatus.FINISHED
    assert groups.leave(b) == ()
    groups.check_invariants()
    assert groups.prompt_committed(a) == (c,)


def test_a_name_is_free_again_when_its_last_member_ended(family):
    groups, states = family
    for state in states:
        state.status = RequestStatus.FINISHED
        groups.leave(state)
    assert (list(groups), groups.num_held) == ([], 0)
    assert [groups.enter(member(name)) for name in "de"] == [True, False]


def test_the_oldest_is_the_one_held_first_of_all_groups():
    groups = SiblingGroups()
    assert groups.oldest is None
    names = ["a0", "b0", "b1", "a1", "b2"]
    states = {name: member(name, name[0], arrival) for arrival, name in enumerate(names)}
    for state in states.values():
        groups.enter(state)
    groups.check_invariants()
    assert groups.oldest is states["b1"]
    groups.prompt_committed(states["b0"])
    groups.check_invariants()
    assert groups.oldest is states["a1"]
    groups.prompt_committed(states["a0"])
    assert groups.oldest is None
