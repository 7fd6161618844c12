import pytest

pytest.importorskip("minivllm_runtime")
pytest.importorskip("torch")

from minivllm_bench.engines.interface import EngineSettings
from minivllm_bench.errors import EngineFailed
from minivllm_bench.live.live_engine import LiveEngine
from minivllm_scheduler.simulation import (
    ClosedLoop,
    FixedLength,
    PoissonArrivals,
    SyntheticWorkload,
    UniformLength,
)


def workload(arrivals, **changes):
    settings = {"num_requests": 9, "prompt_tokens": UniformLength(3, 60), "output_tokens": FixedLength(5)}
    return SyntheticWorkload(arrivals=arrivals, **(settings | changes))


@pytest.fixture
def engine(tiny_llama):
    return LiveEngine.load(
        EngineSettings(model=str(tiny_llama), dtype="float32", device="cpu", num_threads=1)
    )


def served(engine, *workloads):
    """Report and steps of each workload."""
    return [(engine.serve(workload), engine.take_steps()) for workload in workloads]


def test_every_request_is_served_and_every_step_measured(engine):
    ((report, steps),) = served(engine, workload(ClosedLoop(3)))
    assert report.num_finished == 9
    assert 0 < report.ttft_s.p50_s < report.latency_s.p50_s <= report.duration_s
    assert report.output_tokens_per_s == pytest.approx(45 / report.duration_s)
    assert all(step.seconds > 0 for step in steps)
    assert max(step.load.num_rows for step in steps) <= 3
    assert sum(step.seconds for step in steps) < report.duration_s
    # Three rounds of three requests; the last of five passes of a round leaves no request, and is not counted.
    assert [step.load.num_samples for step in steps] == [3] * 3 * 4


def test_requests_arrive_when_the_workload_says_so(engine):
    ((report, _),) = served(engine, workload(PoissonArrivals(20.0), seed=3))
    *_, last = workload(PoissonArrivals(20.0), seed=3).start().arrivals()
    assert report.duration_s > last.time_s
    assert report.num_finished == 9


def test_one_workload_after_another(engine):
    (_, first), (_, second) = served(engine, workload(ClosedLoop(1)), workload(ClosedLoop(2)))
    assert {step.load.num_rows for step in first} == {1}
    assert {step.load.num_rows for step in second} == {1, 2}


def test_the_simulator_gets_the_same_engine(engine):
    simulated = engine.simulated
    assert simulated.config.max_num_batched_tokens == 512
    assert simulated.num_blocks == engine._built.num_blocks
    assert not simulated.run_ahead


def test_a_request_that_does_not_fit_is_one_line(engine):
    with pytest.raises(EngineFailed, match=r"^minivllm: [^\n]+$"):
        served(engine, workload(ClosedLoop(1), prompt_tokens=FixedLength(5000)))


def test_a_model_that_cannot_be_loaded_is_one_line(tmp_path):
    settings = EngineSettings(model=str(tmp_path), dtype="float32", device="cpu", num_threads=1)
    with pytest.raises(EngineFailed, match=r"^minivllm cannot load [^\n]+$"):
        LiveEngine.load(settings)
