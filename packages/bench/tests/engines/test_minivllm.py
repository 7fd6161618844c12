import pytest

pytest.importorskip("minivllm_runtime")
pytest.importorskip("torch")

from minivllm_bench.engines.interface import EngineSettings
from minivllm_bench.engines.registry import open_engine
from minivllm_bench.errors import EngineFailed
from minivllm_bench.offline import checked
from minivllm_bench.workloads import BenchRequest, Workload
from minivllm_scheduler.simulation import UniformLength

UNEQUAL = Workload("unequal", 5, UniformLength(3, 40), UniformLength(1, 9))


def settings(model, **changes):
    return EngineSettings(model=str(model), dtype="float32", device="cpu", num_threads=1, **changes)


def test_both_engines_give_the_same_ids_and_the_same_text(tiny_llama):
    requests = UNEQUAL.draw(128, seed=0, run=1)
    ours, theirs = (open_engine(name, settings(tiny_llama)) for name in ("minivllm", "hf"))
    assert ours.vocab_size == theirs.vocab_size == 128
    run = checked("minivllm", requests, ours.run(requests))
    assert run.completions == theirs.run(requests).completions
    assert run.seconds > 0


def test_a_second_run_finds_nothing_of_the_first_in_a_cache(tiny_llama):
    engine = open_engine("minivllm", settings(tiny_llama))
    requests = [BenchRequest(tuple(range(40)), 4)]
    assert engine.run(requests).completions == engine.run(requests).completions
    assert engine._llm.stats().prefix_hits_tokens == 0


def test_sampling_has_the_temperature_asked_for(tiny_llama):
    engine = open_engine("minivllm", settings(tiny_llama, temperature=2.0))
    request = BenchRequest(tuple(range(40)), 30)
    assert len({engine.run([request]).completions[0].token_ids for _ in range(3)}) == 3


def test_a_model_that_cannot_be_loaded_is_one_line(tmp_path):
    with pytest.raises(EngineFailed, match=r"^minivllm cannot load [^\n]+$"):
        open_engine("minivllm", settings(tmp_path))
