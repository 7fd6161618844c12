"""One scheduler, two worlds: a run of the real engine, replayed without it, gives the same steps and block ids.

The simulator gets commands by pass and sampled ids only, in another process with another hash seed.
"""

import os
import random
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import pytest

from minivllm_runtime.config import EngineConfig
from minivllm_runtime.engine.builder import build_engine
from minivllm_runtime.llm import LLM
from minivllm_runtime.messages import AbortRequest, AddRequests, EngineRequest
from minivllm_runtime.sampling_params import SamplingParams
from minivllm_scheduler import LIFO
from minivllm_scheduler.errors import ReplayDiverged
from minivllm_scheduler.recording import (
    Aborted,
    Recording,
    Scheduled,
    count,
    first_difference,
    read_recording,
    write_recording,
)
from minivllm_scheduler.simulation import replay

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


def in_another_process(tmp_path, hash_seed, command, *recordings):
    """Runs a command of `minivllm_scheduler.simulation` on files with these recordings and on `out.jsonl`."""
    paths = [tmp_path / f"{number}.jsonl" for number in range(len(recordings))]
    for path, recording in zip(paths, recordings, strict=True):
        write_recording(recording, path)
    arguments = [*paths, *([tmp_path / "out.jsonl"] if command == "replay" else [])]
    return subprocess.run(
        [sys.executable, "-m", "minivllm_scheduler.simulation", command, *map(str, arguments)],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("hash_seed", ["1", "4242"])
def test_another_process_makes_the_same_steps_from_the_inputs(recording, hash_seed, tmp_path):
    inputs = recording.without_outputs()
    assert inputs.outputs() == ()
    done = in_another_process(tmp_path, hash_seed, "replay", inputs)
    assert done.returncode == 0, done.stderr
    replayed = read_recording(tmp_path / "out.jsonl")
    difference = first_difference(recording, replayed)
    assert difference is None, str(difference)
    assert len(replayed.outputs()) == count(recording).steps > 50


class ChangesOneVictim:
    """LIFO, but the choice of number `number` is made at random among the others.

    Attributes:
        num_choices: How often there was more than one candidate.
        changed_at: The step for which that choice was made.
    """

    def __init__(self, number, events, seed=0):
        self.number = number
        self.num_choices = 0
        self.changed_at = None
        self._events = events
        self._random = random.Random(seed)

    def __call__(self, candidates):
        if len(candidates) == 1:
            return LIFO(candidates)
        self.num_choices += 1
        if self.num_choices - 1 != self.number:
            return LIFO(candidates)
        self.changed_at = sum(isinstance(event, Scheduled) for event in self._events)
        return self._random.randrange(len(candidates) - 1)


@pytest.mark.parametrize("seed", range(5))
def test_one_changed_decision_is_found_at_its_step(recording, seed, tmp_path):
    inputs = recording.without_outputs()
    unchanged = ChangesOneVictim(None, [])
    replay(inputs, [].append, victim=unchanged)
    events = []
    change = ChangesOneVictim(random.Random(seed).randrange(unchanged.num_choices), events, seed)
    with suppress(ReplayDiverged):  # the ids of those who were preempted instead may be missing
        replay(inputs, events.append, victim=change)
    done = in_another_process(tmp_path, "1", "compare", recording, Recording.of(events))
    assert done.returncode == 1
    assert done.stdout.startswith(f"step {change.changed_at} differs in ")


@pytest.mark.parametrize("part", [{"policies": {"victim": "least_computed"}}, {"num_blocks": 17}])
def test_a_replay_with_other_settings_is_found(recording, part, tmp_path):
    inputs = replace(recording.without_outputs(), setup=replace(recording.setup, **part))
    in_another_process(tmp_path, "1", "replay", inputs)
    assert first_difference(recording, read_recording(tmp_path / "out.jsonl")) is not None


def test_lost_aborts_are_found(recording):
    inputs = tuple(event for event in recording.events if not isinstance(event, Aborted))
    events = []
    with suppress(ReplayDiverged):
        replay(Recording(recording.setup, inputs), events.append)
    assert first_difference(recording, Recording.of(events)) is not None


@pytest.mark.slow
@pytest.mark.parametrize("run_ahead", [False, True], ids=["in order", "one ahead"])
def test_a_run_of_the_default_model_is_replayed(run_ahead, tmp_path):
    events = []
    settings = EngineConfig(
        num_blocks=14,
        block_size=4,
        max_num_seqs=4,
        max_num_batched_tokens=16,
        run_ahead=run_ahead,
        device="cpu",
    )
    llm = LLM.from_engine(build_engine(settings, record=events.append))
    texts = [f"Once upon a time, in a village by the sea, there lived {name}" for name in ("a", "two", "no")]
    llm.generate(texts * 2, SamplingParams(max_tokens=12, seed=3, ignore_eos=True), use_tqdm=False)
    recording = Recording.of(events)
    counts = count(recording)
    assert min(counts.resumptions, counts.prefix_hits, counts.chunks) > 0
    assert in_another_process(tmp_path, "1", "replay", recording.without_outputs()).returncode == 0
    assert first_difference(recording, read_recording(tmp_path / "out.jsonl")) is None
