import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from minivllm_bench.engines.interface import EngineSettings  # noqa: E402
from minivllm_bench.engines.registry import open_engine  # noqa: E402
from minivllm_bench.errors import EngineFailed  # noqa: E402
from minivllm_bench.offline import checked  # noqa: E402
from minivllm_bench.workloads import BenchRequest, Workload  # noqa: E402
from minivllm_scheduler.simulation import UniformLength  # noqa: E402

UNEQUAL = Workload("unequal", 5, UniformLength(3, 40), UniformLength(1, 9))


def settings(model, **changes):
    return EngineSettings(model=str(model), dtype="float32", device="cpu", num_threads=1, **changes)


@pytest.fixture
def engine(tiny_llama):
    engine = open_engine("hf-cb", settings(tiny_llama))
    yield engine
    engine.close()


def test_it_gives_what_generate_gives_whatever_the_lengths(engine, tiny_llama):
    generate = open_engine("hf", settings(tiny_llama))
    assert engine.vocab_size == generate.vocab_size
    for run in range(2):
        requests = UNEQUAL.draw(engine.vocab_size, seed=0, run=run)
        found = checked("hf-cb", requests, engine.run(requests))
        assert found.completions == generate.run(requests).completions
        assert found.seconds > 0


def test_a_manager_serves_all_runs_of_a_workload_and_another_the_next_workload(engine):
    def manager_of(num_requests, prompt_len):
        engine.run([BenchRequest((1,) * prompt_len, 2)] * num_requests)
        return engine._manager

    first = manager_of(2, 100)
    assert manager_of(2, 90) is first
    assert manager_of(2, 300) is not first
    assert not first.is_running()


def test_sampling_has_the_temperature_asked_for(tiny_llama):
    request = BenchRequest(tuple(range(20)), 30)
    engine = open_engine("hf-cb", settings(tiny_llama, temperature=2.0))
    drawn = {engine.run([request]).completions[0].token_ids for _ in range(3)}
    engine.close()
    assert len(drawn) == 3


def test_what_goes_wrong_is_one_line(engine, tmp_path):
    with pytest.raises(EngineFailed, match=r"^hf cannot load [^\n]+$"):
        open_engine("hf-cb", settings(tmp_path))
    with pytest.raises(EngineFailed, match=r"^hf-cb[^\n]+$"):
        engine.run([BenchRequest((128,), 1)])  # no such id
