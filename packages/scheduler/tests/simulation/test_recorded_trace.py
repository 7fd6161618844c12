import pytest

from minivllm_scheduler.recording import Recording
from minivllm_scheduler.simulation import TraceRow, trace_of


@pytest.fixture
def make_trace(make_recorded_world, run_ahead):
    """Serves requests added half a second apart, and returns the trace and the world."""

    def make(*requests, **options):
        world, events = make_recorded_world(16, run_ahead, **options)
        world.now = 100.0
        for number, (prompt, max_tokens, more) in enumerate(requests):
            world.add(f"r{number}", prompt, max_tokens, **more)
            world.now += 0.5
        world.drain()
        return trace_of(Recording.of(events).without_outputs()), world

    return make


def test_lengths_and_times_are_those_of_the_run(make_trace):
    prompts = [(1, 2, 3), (2,) * 9, (3, 1)]
    trace, world = make_trace(
        *((prompt, 7, {"stop_token_ids": frozenset({number})}) for number, prompt in enumerate(prompts))
    )
    assert trace.rows == tuple(
        TraceRow(0.5 * number, len(prompt), len(world.outputs[f"r{number}"]))
        for number, prompt in enumerate(prompts)
    )


def test_prompts_that_share_a_block_form_a_group(make_trace):
    trace, _ = make_trace(
        ((1, 2, 3, 4, 5, 5, 5), 1, {}),
        ((1, 2, 3), 1, {}),
        ((1, 2, 3, 4, 5, 0), 1, {}),
        ((1, 2, 3, 4, 5, 5, 0, 0), 1, {}),
        ((1, 2, 3, 4, 5, 5), 1, {"cache_salt": "pepper"}),
        ((2, 2, 3, 4, 5, 5), 1, {}),
    )
    assert [(row.prefix_group, row.prefix_tokens) for row in trace.rows] == [
        ("prefix-0", 6),
        (None, 0),
        ("prefix-0", 5),
        ("prefix-0", 6),
        (None, 0),
        (None, 0),
    ]


def test_an_aborted_request_counts_as_far_as_it_got(make_recorded_world):
    world, events = make_recorded_world(16, run_ahead=False)
    world.add("a", (1, 2), 9)
    world.step()
    world.step()
    world.abort("a")
    world.add("b", (1, 2), 9)
    world.abort("b")
    world.add("a", (3,), 1)
    world.drain()
    rows = trace_of(Recording.of(events)).rows
    assert [(row.arrival_time_s, row.prompt_tokens, row.output_tokens) for row in rows] == [
        (0.0, 2, 2),
        (2.0, 1, 1),
    ]


def test_a_run_without_requests_is_an_empty_trace(make_recorded_world):
    _, events = make_recorded_world(16, run_ahead=False)
    assert trace_of(Recording.of(events)).rows == ()
