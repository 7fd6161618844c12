"""The checks must notice: each kind of damage, done to a sound scheduler by hand, fails them."""

import pytest

from minivllm_scheduler.request import RequestStatus


@pytest.fixture
def scheduler(make_world):
    world = make_world(16, max_num_seqs=2)
    for name in ("a", "b", "c", "d"):
        world.add(name, [1, 2, 3], 9, group="g" if name in "cd" else None)
    world.executor.launch(world.scheduler.schedule(0.0))
    world.scheduler.check_invariants()
    return world.scheduler


DAMAGE = {
    "in no container": lambda s: s._running.pop(),
    "in two containers": lambda s: s._waiting.push(s._running[0]),
    "wrong status": lambda s: setattr(s._running[0], "status", RequestStatus.WAITING),
    "held without a leader": lambda s: setattr(s._groups._groups["g"], "leader", None),
    "lost placeholder": lambda s: setattr(s._running[0], "num_placeholders", 0),
    "not behind": lambda s: setattr(s._running[0], "num_computed_tokens", 4),
    "computed while waiting": lambda s: setattr(s._waiting.head(), "num_computed_tokens", 1),
    "past max_tokens": lambda s: setattr(s._running[0], "max_total_tokens", 3),
    "unknown id": lambda s: s._running[0].keys.append(1),
    "lost blocks": lambda s: s._kv.free("a"),
    "foreign blocks": lambda s: s._kv.allocate("nobody", s._running[0].keys, 3),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_noticed(scheduler, damage):
    damage(scheduler)
    with pytest.raises((AssertionError, LookupError)):
        scheduler.check_invariants()
