import pytest

from minivllm_scheduler import LEAST_COMPUTED, DuplicateRequest, Request
from minivllm_scheduler.recording import Aborted, Added, Failed, PassBegan, Sampled, Scheduled


def test_everything_is_recorded_in_the_order_in_which_it_happens(make_recorded_world):
    world, events = make_recorded_world(16, run_ahead=True)
    world.add("a", [1, 2], 9)
    world.step()
    world.step()
    world.abort("a")
    kinds = [type(event) for event in events[1:]]
    assert kinds == [Added, PassBegan, Scheduled, PassBegan, Scheduled, Sampled, Aborted]
    assert events[1] == Added(0.0, (world.requests["a"],))
    assert [events[3].output, events[5].output] == world.executor.outputs
    assert events[4].now == 2.0


def test_the_setup_says_how_to_build_the_same_scheduler(make_recorded_world):
    world, events = make_recorded_world(
        16, run_ahead=True, prefix_caching=False, max_num_seqs=3, victim=LEAST_COMPUTED
    )
    setup = events[0]
    assert (setup.num_blocks, setup.block_size, setup.prefix_caching) == (16, 4, False)
    assert (setup.run_ahead, setup.policies) == (True, {"order": "by_arrival", "victim": "least_computed"})
    assert setup.config.max_num_seqs == 3
    assert world.scheduler.stats().num_running == 0


def test_what_changes_nothing_is_not_recorded(make_recorded_world):
    world, events = make_recorded_world(16, run_ahead=False)
    world.add("a", [1, 2], 9)
    num_events = len(events)
    with pytest.raises(DuplicateRequest):
        world.add("a", [1, 2], 9)
    assert not world.abort("nobody")
    assert len(events) == num_events


def test_a_failed_step_has_no_result(make_recorded_world):
    world, events = make_recorded_world(16, run_ahead=False)
    world.add("a", [1, 2], 9)
    world.executor.fail_at = "result"
    with pytest.raises(world.executor.Fault):
        world.step()
    world.fail()
    assert [type(event) for event in events[2:]] == [PassBegan, Scheduled, Failed]


def test_ids_are_recorded_as_tuples(make_recorded_world):
    world, events = make_recorded_world(16, run_ahead=False)
    world.scheduler.add([Request(request_id="a", prompt_token_ids=range(3), max_tokens=1)], 0.0)
    world.scheduler.schedule(0.0)
    assert events[-1].output.admitted[0].token_ids == (0, 1, 2)
