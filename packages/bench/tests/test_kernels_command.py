import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("minivllm_runtime")

from minivllm_bench.cli import main  # noqa: E402

TINY = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a CUDA device")
def test_a_machine_without_a_device_is_one_line(capsys):
    assert main(["kernels"]) == 2
    assert capsys.readouterr().err.startswith("minivllm-bench: kernels needs a CUDA device")


def test_an_unknown_shape_is_refused_with_the_known_ones(capsys):
    assert main(["kernels", "--model-config", "gpt-5"]) == 2
    assert "tinyllama-1.1b" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_every_operation_has_a_time_and_a_limit(tmp_path):
    shape, figures = tmp_path / "config.json", tmp_path / "figures.json"
    shape.write_text(json.dumps(TINY))
    arguments = ["--model-config", str(shape), "--rows", "1,3", "--contexts", "20", "--json", str(figures)]
    assert main(["kernels", *arguments]) == 0
    rows = json.loads(figures.read_text())["rows"]
    assert len(rows) == 2 * 6 + 2 + 1
    assert all(0 < row["least_seconds"] < row["seconds"] for row in rows)
