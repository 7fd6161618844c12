import pytest

from minivllm_scheduler import SchedulerConfig, SchedulerOutput
from minivllm_scheduler.errors import InvalidRecording
from minivllm_scheduler.recording import Failed, PassBegan, Recording, Scheduled, Setup

SETUP = Setup(
    config=SchedulerConfig(max_num_seqs=1, max_num_batched_tokens=1, max_model_len=2, max_num_waiting=1),
    num_blocks=1,
    block_size=1,
    prefix_caching=True,
    run_ahead=False,
    policies={},
)
STEP = SchedulerOutput(0, (), (), ())


def test_a_recording_separates_the_setup_from_what_follows():
    assert Recording.of([SETUP, PassBegan(0.0)]) == Recording(SETUP, (PassBegan(0.0),))


@pytest.mark.parametrize("events", [[], [PassBegan(0.0)], [SETUP, PassBegan(0.0), SETUP]])
def test_a_recording_has_one_setup_at_its_start(events):
    with pytest.raises(InvalidRecording, match="setup"):
        Recording.of(events)


def test_steps_are_known_by_the_pass_that_scheduled_them():
    events = [PassBegan(0.0), PassBegan(1.0), Scheduled(STEP), Failed(1.0), PassBegan(2.0), Scheduled(STEP)]
    recording = Recording(SETUP, tuple(events))
    assert recording.outputs() == ((1, STEP), (2, STEP))
    assert recording.without_outputs().events == (
        PassBegan(0.0),
        PassBegan(1.0),
        Failed(1.0),
        PassBegan(2.0),
    )
