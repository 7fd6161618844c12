import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from minivllm_bench.engines.hf import HfEngine, left_pad  # noqa: E402
from minivllm_bench.engines.interface import EngineSettings  # noqa: E402
from minivllm_bench.errors import EngineFailed  # noqa: E402
from minivllm_bench.offline import measure  # noqa: E402
from minivllm_bench.workloads import BenchRequest, Workload  # noqa: E402
from minivllm_scheduler.simulation import UniformLength  # noqa: E402

UNEQUAL = Workload("unequal", 4, UniformLength(3, 9), UniformLength(2, 6))


def load(folder, dtype="float32", **changes):
    return HfEngine.load(
        EngineSettings(model=str(folder), dtype=dtype, device="cpu", num_threads=1, **changes)
    )


def test_left_padding_aligns_prompts_at_the_right():
    input_ids, attention_mask = left_pad([(5,), (6, 7, 8)], pad_id=9)
    assert input_ids.tolist() == [[9, 9, 5], [6, 7, 8]]
    assert attention_mask.tolist() == [[0, 0, 1], [1, 1, 1]]


def test_a_batch_of_unequal_requests_gives_what_each_gives_alone(tiny_llama):
    engine = load(tiny_llama)
    requests = UNEQUAL.draw(engine.vocab_size, seed=1, run=0)
    together = engine.run(requests).completions
    alone = tuple(engine.run([request]).completions[0] for request in requests)
    assert together == alone


def test_end_of_sequence_is_ignored_and_ids_are_detokenized(tiny_llama):
    completion = load(tiny_llama).run([BenchRequest((1, 2, 3), 5)]).completions[0]
    assert len(completion.token_ids) == 5
    assert completion.text == "".join(f"w{token_id}" for token_id in completion.token_ids)


def test_sampling_has_the_temperature_asked_for(tiny_llama):
    def drawn(temperature):
        engine = load(tiny_llama, temperature=temperature)
        return {engine.run([BenchRequest((1, 2, 3), 30)]).completions[0].token_ids for _ in range(3)}

    assert [len(drawn(temperature)) for temperature in (0.0, 1e-4, 2.0)] == [1, 1, 3]


def test_the_model_runs_in_the_dtype_asked_for(tiny_llama):
    engine = load(tiny_llama, dtype="bfloat16")
    assert engine.run([BenchRequest((1, 2), 3)]).seconds > 0
    assert engine.vocab_size == 128


def test_two_engines_are_measured_against_each_other(tiny_llama):
    engines = {"hf": load(tiny_llama), "again": load(tiny_llama)}
    found = measure(engines, [UNEQUAL], repeats=2, seed=0, announce=str)
    assert [measurement.engine for measurement in found] == ["hf", "again"]
    assert found[0].output_tokens == found[1].output_tokens
    assert all(seconds > 0 for measurement in found for seconds in measurement.seconds)


def test_a_folder_without_a_model_is_one_line(tmp_path):
    with pytest.raises(EngineFailed, match=r"^hf cannot load [^\n]+$"):
        load(tmp_path)
