import pytest

from minivllm_bench.live.pass_times import PassTimes
from minivllm_scheduler import KVCacheManager, Request, SchedulerConfig, StepLoop, StepResult
from minivllm_scheduler.recording import PassBegan, RecordingScheduler, Setup


class Executor:
    """Each step takes as many seconds as it has tokens; `clock` shows them."""

    def __init__(self):
        self.now_s = 0.0

    def clock(self):
        return self.now_s

    def launch(self, output):
        self.now_s += sum(row.num_tokens for row in output.rows)
        self.due = StepResult(output.step_id, ((5,),) * sum(row.samples for row in output.rows))

    def result(self):
        return self.due


@pytest.fixture
def world():
    executor = Executor()
    times = PassTimes(executor.clock)
    config = SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=8, max_model_len=64, max_num_waiting=9)

    def record(event):
        if not isinstance(event, Setup):
            times.record(event)

    scheduler = RecordingScheduler(config, KVCacheManager(64, 4), run_ahead=False, record=record)
    return executor, times, scheduler, StepLoop(scheduler, executor, run_ahead=False)


def request(name, num_prompt_tokens, max_tokens):
    return Request(request_id=name, prompt_token_ids=range(num_prompt_tokens), max_tokens=max_tokens)


def run(world):
    executor, _, _, loop = world
    while loop.has_work:
        loop.step(0.0)
        executor.now_s += 0.25  # what the host does between two passes


def test_a_pass_lasts_until_the_next_one_begins(world):
    _, times, scheduler, _ = world
    scheduler.add([request("a", 11, 3)], 0.0)
    run(world)
    (chunk, rest, decode) = times.take() + times.take()
    assert [step.seconds for step in (chunk, rest)] == [8.25, 3.25]
    assert (chunk.load.num_tokens, chunk.load.num_samples) == (8, 0)
    assert (rest.load.num_tokens, rest.load.num_context_tokens) == (3, 11)
    assert decode.seconds == 1.25


def test_the_wait_for_the_next_request_is_in_no_pass(world):
    executor, times, scheduler, _ = world
    for _ in range(2):
        scheduler.add([request("a", 5, 2), request("b", 1, 1)], 0.0)
        run(world)
        executor.now_s += 1000.0
    # The second time a block of four tokens is in the prefix cache.
    assert [step.seconds for step in times.take()] == [6.25, 2.25]


def test_a_pass_without_a_step_is_not_counted(world):
    _, times, _, _ = world
    for _ in range(3):
        times.record(PassBegan(0.0))
    assert times.take() == ()
