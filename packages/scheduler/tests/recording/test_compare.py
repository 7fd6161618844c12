from dataclasses import replace

import pytest

from minivllm_scheduler.recording import PassBegan, Recording, Scheduled, first_difference


def changed(recording, step_id, change):
    """The recording with another output of one step."""
    events = [
        Scheduled(change(event.output))
        if isinstance(event, Scheduled) and event.output.step_id == step_id
        else event
        for event in recording.events
    ]
    return replace(recording, events=tuple(events))


def change_row(**values):
    return lambda output: output._replace(rows=(*output.rows[:-1], output.rows[-1]._replace(**values)))


def test_a_recording_does_not_differ_from_itself(recording):
    assert first_difference(recording, recording) is None


@pytest.mark.parametrize("step_id", [0, 5, 11])
@pytest.mark.parametrize("values", [{"new_block_ids": (99,)}, {"num_tokens": 77}, {"request_id": "nobody"}])
def test_the_first_step_that_differs_is_named(recording, step_id, values):
    other = changed(changed(recording, step_id, change_row(**values)), 12, change_row(start=55))
    difference = first_difference(recording, other)
    assert difference.step_id == step_id
    assert difference.what.startswith("rows[")
    assert next(iter(values.values())) in difference.right
    assert str(difference).startswith(f"step {step_id} differs in rows[")


def test_block_ids_of_an_admission_and_releases_are_compared(recording):
    step = next(output for _, output in recording.outputs() if output.admitted)
    other = changed(
        recording,
        step.step_id,
        lambda output: output._replace(admitted=(output.admitted[0]._replace(block_ids=(99,)),)),
    )
    difference = first_difference(recording, other)
    assert (difference.step_id, difference.what) == (step.step_id, "admitted[0]")
    other = changed(recording, 3, lambda output: output._replace(released=(*output.released, "x")))
    difference = first_difference(other, recording)
    assert (difference.step_id, difference.left, difference.right) == (3, "x", None)


def test_a_recording_that_ends_early_differs_at_its_end(recording):
    *first, last = recording.outputs()
    shorter = Recording(recording.setup, tuple(e for e in recording.events if e != Scheduled(last[1])))
    difference = first_difference(shorter, recording)
    assert difference == (len(first), "step", None, last[1])
    assert first_difference(recording, shorter) == (len(first), "step", last[1], None)


def test_a_step_in_another_pass_differs(recording):
    later = Recording(recording.setup, (PassBegan(0.0), *recording.events))
    assert first_difference(recording, later) == (0, "pass", 0, 1)


def test_the_step_ids_are_compared(recording):
    other = changed(recording, 2, lambda output: output._replace(step_id=9))
    assert first_difference(recording, other) == (2, "step_id", 2, 9)
