import dataclasses
import io
import json

import pytest
from rich.console import Console

torch = pytest.importorskip("torch")
pytest.importorskip("minivllm_runtime")

from minivllm_bench.cli import main  # noqa: E402
from minivllm_bench.kernel_bench import KernelCost  # noqa: E402
from minivllm_bench.kernels_command import to_json, to_table  # noqa: E402
from minivllm_bench.machine import read_machine  # noqa: E402
from minivllm_scheduler.simulation import DeviceSheet  # noqa: E402

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


CEILINGS = DeviceSheet(flops_per_s=800e12, bytes_per_s=4e12)
COSTS = (
    KernelCost("prefill attention, prompts of 100000, 1 requests", 0.5, 10**12, 10**14, 0.25),
    KernelCost("head, 1 rows", 32e-6, 10**8, 10**8, 25e-6),
)
DIRTY = dataclasses.replace(read_machine(), git_commit="0123", git_dirty=True)


def test_the_table_fits_90_columns_and_says_what_is_doubtful():
    console = Console(file=io.StringIO(), width=90)
    console.print(to_table(COSTS, CEILINGS, DIRTY, "title"))
    text = console.file.getvalue()
    for cell in ("1 requests", "500000.0", "2.00", "200", "50%", "78%", "4.00 TB/s", "uncommitted"):
        assert cell in text


def test_the_json_has_every_figure_and_its_reservations():
    report = json.loads(to_json(COSTS, CEILINGS, DIRTY, {"model": "m", "dtype": "float16"}))
    assert report["rows"] == [dataclasses.asdict(cost) for cost in COSTS]
    assert report["ceilings"] == {"bytes_per_s": 4e12, "flops_per_s": 800e12}
    assert report["reservations"] == ["the checkout has uncommitted changes"]
    assert (report["schema"], report["settings"]) == (2, {"model": "m", "dtype": "float16"})


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--rows", "x"], "--rows names 'x'"),
        (["--contexts", "1,1"], "--contexts names 1 twice"),
        (["--json", "no/such/folder/x.json"], "no folder no/such/folder for --json"),
    ],
)
def test_a_bad_value_is_refused_before_a_device_is_looked_for(arguments, named, capsys):
    assert main(["kernels", *arguments]) == 2
    assert named in capsys.readouterr().err


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
    arguments = ["--model-config", str(shape), "--rows", "1,3", "--contexts", "20", "--dtype", "bfloat16"]
    assert main(["kernels", *arguments, "--json", str(figures)]) == 0
    rows = json.loads(figures.read_text())["rows"]
    ours = [row for row in rows if row["operation"].endswith((" rows", " requests"))]
    assert len(ours) == 2 * 6 + 2 + 1
    assert "prefill attention, prompts of 20, 204 requests, torch flash" in {row["operation"] for row in rows}
    assert all(0 < row["least_seconds"] < row["seconds"] for row in rows)
