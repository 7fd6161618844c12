"""A run with everything in it, recorded: chunks, prefix hits, preemptions, an abort, a fault."""

from functools import partial

import pytest

from minivllm_scheduler.recording import Recording, RecordingScheduler

PREFIX = (1, 2, 3, 4, 5, 0)


@pytest.fixture(scope="session")
def make_recorded_world(make_world):
    """Builds a World and the list that its events go to."""

    def make(num_blocks, run_ahead, **options):
        events = []
        make_scheduler = partial(RecordingScheduler, run_ahead=run_ahead, record=events.append)
        world = make_world(num_blocks, run_ahead=run_ahead, make_scheduler=make_scheduler, **options)
        return world, events

    return make


@pytest.fixture(scope="session")
def record_run(make_recorded_world):
    """Makes a recording; `policies` are those of the scheduler."""

    def record(run_ahead, **policies):
        world, events = make_recorded_world(9, run_ahead, watermark=0.0, max_num_batched_tokens=8, **policies)
        for index in range(6):
            world.add(f"r{index}", (*PREFIX, *range(index)), 12)
            world.step()
        world.abort("r5")
        for _ in range(40):
            world.step()
        world.add("late", PREFIX, 6, stop_token_ids=frozenset({1}))
        world.step()
        world.executor.fail_at = "result"
        with pytest.raises(world.executor.Fault):
            world.step()
        world.fail()
        world.drain()
        return Recording.of(events)

    return record


@pytest.fixture(scope="session")
def recordings(record_run):
    """The recording in order, and the one of a loop that runs one step ahead."""
    return {run_ahead: record_run(run_ahead) for run_ahead in (False, True)}


@pytest.fixture
def recording(recordings, run_ahead):
    return recordings[run_ahead]
