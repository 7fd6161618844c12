"""One scheduler, two worlds: a run of the real engine, replayed without it, gives the same steps and block ids.

The replay gets commands by pass and sampled ids only, in another process with another hash seed.
"""

import os
import random
import subprocess
import sys
from contextlib import suppress

import pytest

from minivllm_runtime.engine.messages import AbortRequest, AddRequests, EngineRequest
from minivllm_scheduler import LIFO
from minivllm_scheduler.errors import ReplayDiverged
from minivllm_scheduler.recording import (
    Aborted,
    Recording,
    Scheduled,
    count,
    first_difference,
    read_recording,
    replay,
    write_recording,
)

NUM_PASSES_WITH_COMMANDS = 80


def random_commands(random_, number, live):
    """What clients send before a pass: a request, the choices of one prompt, an abort, or nothing."""
    call = random_.random()
    if live and call < 0.1:
        return (AbortRequest(random_.choice(sorted(live))),)
    if call < 0.6:
        return ()
    shared = [7, 7, 3, 9, 1, 4, 4, 2][: random_.randrange(9)]
    prompt = (*shared, *(random_.randrange(128) for _ in range(random_.randrange(1, 20))))
    num_choices = random_.choice([1, 1, 1, 3])
    requests = tuple(
        EngineRequest(
            request_id=f"{number}-{choice}",
            prompt_token_ids=prompt,
            max_tokens=random_.randrange(1, 20),
            stop_token_ids=frozenset(range(4)),
            seed=number,
            choice=choice,
            group=f"g{number}" if num_choices > 1 else None,
        )
        for choice in range(num_choices)
    )
    return (AddRequests(f"{number}", requests),)


def requests_of(command):
    if isinstance(command, AbortRequest):
        return {command.request_id}
    return {request.request_id for request in command.requests}


def ended(outputs):
    assert all(output.error is None for output in outputs)
    return {output.request_id for output in outputs if output.finish_reason is not None}


@pytest.fixture(scope="module", params=[False, True], ids=["in order", "one ahead"])
def recording(request, make_recorded_engine):
    core, events = make_recorded_engine(
        num_blocks=18, max_num_seqs=8, max_num_batched_tokens=16, run_ahead=request.param
    )
    random_ = random.Random(11)
    live = set()
    for number in range(NUM_PASSES_WITH_COMMANDS):
        commands = random_commands(random_, number, live)
        core.execute(commands)
        for command in commands:
            live ^= requests_of(command)
        live -= ended(core.step())
    while live:
        live -= ended(core.step())
    while core.has_work:
        core.step()
    recording = Recording.of(events)
    assert count(recording).resumptions <= core.stats().num_preemptions  # some were aborted in between
    return recording


def test_the_recorded_run_has_everything_in_it(recording):
    counts = count(recording)
    assert min(counts.resumptions, counts.prefix_hits, counts.chunks, counts.aborts) > 0
    assert counts.requests > 20


@pytest.mark.parametrize("hash_seed", ["1", "4242"])
def test_another_process_makes_the_same_steps_from_the_inputs(recording, hash_seed, tmp_path):
    inputs, output = tmp_path / "inputs.jsonl", tmp_path / "replayed.jsonl"
    write_recording(recording.without_outputs(), inputs)
    assert '"scheduled"' not in inputs.read_text()
    command = [sys.executable, "-m", "minivllm_scheduler.recording", "replay", str(inputs), str(output)]
    subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": hash_seed}, check=True)
    replayed = read_recording(output)
    difference = first_difference(recording, replayed)
    assert difference is None, str(difference)
    assert len(replayed.outputs()) == count(recording).steps > 50


@pytest.mark.parametrize("seed", range(5))
def test_one_changed_decision_is_found_at_its_step(recording, seed):
    """The replay preempts another request than the engine did, once; the comparison must name that step."""
    choices = []

    def num_steps(events):
        return sum(isinstance(event, Scheduled) for event in events)

    def count_choices(candidates):
        choices.extend([None] if len(candidates) > 1 else [])
        return LIFO(candidates)

    replay(recording.without_outputs(), [].append, victim=count_choices)
    random_ = random.Random(seed)
    remaining = random_.randrange(len(choices))
    changed_at = []
    events = []

    def change_one(candidates):
        nonlocal remaining
        if len(candidates) > 1:
            remaining -= 1
            if remaining == -1:
                changed_at.append(num_steps(events))
                return random_.randrange(len(candidates) - 1)
        return LIFO(candidates)

    with suppress(ReplayDiverged):  # ids that were sampled for others may not fit
        replay(recording.without_outputs(), events.append, victim=change_one)
    difference = first_difference(recording, Recording.of(events))
    assert difference is not None
    assert [difference.step_id] == changed_at
    assert f"step {changed_at[0]} differs in " in str(difference)


def test_lost_aborts_are_found(recording):
    """Inputs that the replay does not get change what it decides."""
    events = []
    inputs = tuple(event for event in recording.events if not isinstance(event, Aborted))
    with suppress(ReplayDiverged):
        replay(Recording(recording.setup, inputs), events.append)
    assert first_difference(recording, Recording.of(events)) is not None
