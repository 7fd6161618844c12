import pytest

pytest.importorskip("minivllm_runtime")
pytest.importorskip("torch")

from minivllm_bench.engines.dummy_model import write_dummy_model
from minivllm_bench.engines.interface import EngineSettings
from minivllm_bench.engines.registry import open_engine
from minivllm_bench.model_configs import CONFIGS
from minivllm_bench.offline import checked
from minivllm_bench.workloads import Workload
from minivllm_scheduler.simulation import UniformLength

TINY = {**CONFIGS["tinyllama-1.1b"], "vocab_size": 300, "hidden_size": 64, "intermediate_size": 96}
TINY |= {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}


@pytest.mark.parametrize("name", ["minivllm", "hf", "hf-cb"])
def test_an_engine_runs_a_shape_without_weights(name, tmp_path):
    write_dummy_model(TINY, tmp_path)
    engine = open_engine(
        name,
        EngineSettings(model=str(tmp_path), dtype="float32", device="cpu", num_threads=1, dummy_weights=True),
    )
    requests = Workload("unequal", 3, UniformLength(3, 20), UniformLength(1, 5)).draw(300, seed=0, run=1)
    assert engine.vocab_size == 300
    completions = checked(name, requests, engine.run(requests)).completions
    engine.close()
    for completion in completions:
        assert completion.text == "".join(f" {token_id:x}" for token_id in completion.token_ids)
