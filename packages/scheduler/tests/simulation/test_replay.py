"""A replay decides as the recorded run did, and says so when it cannot."""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minivllm_scheduler import LIFO, StepResult
from minivllm_scheduler.errors import InvalidRecording, ReplayDiverged
from minivllm_scheduler.recording import (
    Aborted,
    Failed,
    PassBegan,
    Recording,
    Sampled,
    Scheduled,
    count,
    first_difference,
)
from minivllm_scheduler.simulation import replay


def replayed(recording, **policies):
    events = []
    replay(recording.without_outputs(), events.append, **policies)
    return Recording.of(events)


def test_a_replay_of_the_inputs_gives_the_whole_recording(recording):
    counts = count(recording)
    assert min(counts.aborts, counts.chunks, counts.prefix_hits, counts.resumptions) > 0
    assert any(isinstance(event, Failed) for event in recording.events)
    assert replayed(recording) == recording


@settings(max_examples=60)
@given(
    data=st.data(), run_ahead=st.booleans(), num_blocks=st.integers(4, 9), chunk=st.sampled_from([None, 3])
)
def test_any_run_can_be_replayed(make_recorded_world, data, run_ahead, num_blocks, chunk):
    world, events = make_recorded_world(
        num_blocks, run_ahead, watermark=0.0, max_num_batched_tokens=9, prefill_chunk_size=chunk
    )
    for number, call in enumerate(data.draw(st.lists(st.sampled_from("aaassssxfF"), max_size=40))):
        if call == "a":
            prompt = data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=7))
            world.add(f"r{number}", prompt, data.draw(st.integers(1, 9)), group=None)
        elif call == "x" and world.live:
            world.abort(data.draw(st.sampled_from(sorted(world.live))))
        else:
            world.executor.fail_at = {"f": "launch", "F": "result"}.get(call)
            try:
                world.step()
            except world.executor.Fault:
                world.fail()
            world.executor.fail_at = None
    world.drain()
    assert replayed(Recording.of(events)) == Recording.of(events)


def test_a_recording_that_was_cut_off_is_replayed_as_far_as_it_goes(recording):
    for length in range(len(recording.events)):
        part = replace(recording, events=recording.events[:length])
        assert first_difference(part, replayed(part)) in (None, (len(part.outputs()), "step", None, ANYTHING))


class _Anything:
    def __eq__(self, other):
        return True

    __hash__ = None


ANYTHING = _Anything()


def test_another_policy_is_noticed_at_the_step_where_it_decides_differently(recording):
    assert first_difference(recording, replayed(recording, victim=LIFO)) is None
    events, choices = [], []

    def first_candidate(candidates):
        if len(candidates) > 1:
            choices.append(sum(isinstance(event, Scheduled) for event in events))
        return 0

    with suppress(ReplayDiverged):
        replay(recording, events.append, victim=first_candidate)
    difference = first_difference(recording, Recording.of(events))
    assert difference.step_id == choices[0]


def test_a_policy_that_is_not_ours_must_be_given(record_run, run_ahead):
    def mine(candidates):
        return 0

    recording = record_run(run_ahead, victim=mine)
    with pytest.raises(InvalidRecording, match="victim 'mine'"):
        replayed(recording)
    assert replayed(recording, victim=mine) == recording


def without(recording, event):
    events = list(recording.events)
    del events[events.index(event)]
    return replace(recording, events=tuple(events))


def first(recording, kind):
    return next(event for event in recording.events if isinstance(event, kind))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda recording: without(recording, first(recording, Sampled)), "asks for a result"),
        (
            lambda recording: replace(
                recording,
                events=tuple(
                    Sampled(StepResult(event.result.step_id, ())) if isinstance(event, Sampled) else event
                    for event in recording.events
                ),
            ),
            "pass .*: step .* returned 0 ids",
        ),
        (
            lambda recording: replace(recording, events=(Aborted(0.0, "x"), *recording.events)),
            "Aborted before pass 0: request 'x'",
        ),
        (
            lambda recording: replace(recording, events=(recording.events[0], *recording.events)),
            "Added before pass 0: request id",
        ),
        (
            lambda recording: replace(
                recording, events=(PassBegan(0.0), first(recording, Sampled), *recording.events)
            ),
            "pass 0: it does not ask",
        ),
    ],
)
def test_inputs_that_do_not_fit_are_named_by_their_pass(recording, change, message):
    with pytest.raises(ReplayDiverged, match=message):
        replayed(change(recording))
