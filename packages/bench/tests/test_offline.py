import pytest

from minivllm_bench.engines.interface import Completion, TimedRun
from minivllm_bench.errors import InvalidRun, InvalidSetting
from minivllm_bench.offline import Measurement, checked, measure
from minivllm_bench.workloads import BenchRequest, Workload
from minivllm_scheduler.simulation import UniformLength

WORKLOAD = Workload("three", 3, UniformLength(2, 4), UniformLength(1, 5))


class ScriptedEngine:
    """Answers at once and claims the times it was given."""

    def __init__(self, name, seconds, log, vocab_size=50):
        self.name = name
        self.seconds = list(seconds)
        self.log = log
        self.vocab_size = vocab_size

    def run(self, requests):
        self.log.append((self.name, tuple(requests)))
        completions = tuple(Completion((1,) * request.output_len, "text") for request in requests)
        return TimedRun(completions, self.seconds.pop(0))

    def close(self):
        self.log.append((self.name, "closed"))


def run_two(repeats):
    log, announced = [], []
    engines = {
        "a": ScriptedEngine("a", [100.0, 1.0, 2.0, 4.0], log),
        "b": ScriptedEngine("b", [100.0, 8.0, 8.0, 8.0], log, vocab_size=20),
    }
    found = measure(engines, [WORKLOAD], repeats=repeats, seed=3, announce=announced.append)
    return found, log, announced


def test_the_warm_up_is_run_but_not_counted():
    (a, b), log, _ = run_two(repeats=3)
    assert a.seconds == (1.0, 2.0, 4.0)
    assert b.seconds == (8.0, 8.0, 8.0)
    assert len(log) == 2 * 4


def test_engines_take_turns_on_the_same_prompts_and_prompts_are_fresh_each_time():
    _, log, _ = run_two(repeats=3)
    runs = [log[start : start + 2] for start in range(0, len(log), 2)]
    assert [[name for name, _ in run] for run in runs] == [["a", "b"], ["b", "a"], ["a", "b"], ["b", "a"]]
    batches = [first for (_, first), (_, second) in runs if first == second]
    assert len(set(batches)) == 4


def test_prompts_fit_the_smallest_vocabulary():
    _, log, _ = run_two(repeats=3)
    ids = {token_id for _, batch in log for request in batch for token_id in request.prompt_token_ids}
    assert max(ids) < 20


def test_token_counts_are_those_of_the_timed_requests():
    (a, _), log, _ = run_two(repeats=2)
    timed = [batch for name, batch in log if name == "a"][1:]
    assert a.output_tokens == tuple(sum(request.output_len for request in batch) for batch in timed)
    assert a.input_tokens == tuple(sum(len(request.prompt_token_ids) for request in batch) for batch in timed)


def test_every_run_is_announced():
    _, _, announced = run_two(repeats=1)
    assert announced == [
        "three: warm-up, a",
        "three: warm-up, b",
        "three: repeat 1 of 1, b",
        "three: repeat 1 of 1, a",
    ]


def test_medians_are_taken_of_times_and_of_rates():
    measurement = Measurement("a", "w", (1.0, 4.0, 2.0), (10, 10, 40), (20, 20, 20))
    assert measurement.median_seconds == 2.0
    assert measurement.output_tokens_per_s == 10.0
    assert measurement.input_tokens_per_s == 10.0
    assert measurement.spread == 1.5


def test_no_repeat_is_refused():
    with pytest.raises(InvalidSetting, match="got 0"):
        run_two(repeats=0)


@pytest.mark.parametrize("lengths", [(), (2, 3, 1), (2, 2), (3, 3), (2, 4)])
def test_a_run_with_other_token_counts_than_asked_is_no_figure(lengths):
    requests = [BenchRequest((1,), 2), BenchRequest((1,), 3)]
    run = TimedRun(tuple(Completion((7,) * length, "") for length in lengths), 1.0)
    with pytest.raises(InvalidRun, match=r"^a "):
        checked("a", requests, run)
