import json

import pytest

from minivllm_bench.cli import main

pytest.importorskip("minivllm_runtime")

LIMITS = {"max_num_seqs": 4, "max_num_batched_tokens": 8, "max_model_len": 64, "max_num_waiting": 9}


@pytest.mark.slow
def test_a_calibration_is_read_by_truth_and_by_simulate(tiny_llama, tmp_path, capsys):
    cost, truth = tmp_path / "cost.json", tmp_path / "truth.json"
    arguments = ["--model", str(tiny_llama), "--dtype", "float32", "--device", "cpu", "--num-threads", "1"]
    assert main(["calibrate", *arguments, "--json", str(cost)]) == 0
    assert "held-out steps" in capsys.readouterr().out
    workload = ["--requests", "20", "--arrivals", "poisson:20"]
    assert main(["truth", "--cost", str(cost), *workload, "--json", str(truth)]) == 0
    assert "TTFT p95" in capsys.readouterr().out
    report = json.loads(truth.read_text())
    assert report["settings"]["requests"] == 20
    throughput = report["rows"][0]
    assert throughput["name"] == "output tokens/s"
    assert throughput["measured"] > 0
    assert throughput["simulated"] > 0
    simulated = tmp_path / "simulated.json"
    assert main(["simulate", "--cost", str(cost), "--requests", "5", "--json", str(simulated)]) == 0
    settings = json.loads(simulated.read_text())["settings"]
    assert (settings["max_num_batched_tokens"], settings["run_ahead"]) == (512, False)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["calibrate", "--json", "no/such/folder/x.json"], "no/such/folder"),
        (["calibrate", "--num-threads", "0"], "--num-threads"),
        (["calibrate", "--device", "tpu"], "tpu"),
        (["truth"], "--cost"),
        (["truth", "--cost", "{cost}", "--requests", "0"], "--requests"),
        (["truth", "--cost", "{cost}", "--arrivals", "poisson:0"], "rate_per_s is 0"),
        (["truth", "--cost", "{cost}", "--json", "no/such/folder/x.json"], "no/such/folder"),
        (["truth", "--cost", "{readme}"], "not a file that calibrate wrote"),
    ],
)
def test_a_bad_value_is_one_line_and_status_2(arguments, named, tmp_path, capsys):
    settings = {"model": "smollm2", "dtype": "float32", "device": "cpu", "num_threads": 1}
    cost = tmp_path / "cost.json"
    cost.write_text(
        json.dumps(
            {
                "schema": 2,
                "settings": settings,
                "engine": {"config": LIMITS, "num_blocks": 9, "block_size": 4},
                "cost": {"base_s": 1.0, "token_curve": None},
            }
        )
    )
    readme = tmp_path / "README.md"
    readme.write_text("# No cost")
    assert main([argument.format(cost=cost, readme=readme) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("minivllm-bench: ")
    assert err.count("\n") == 1
    assert named in err


def test_a_missing_cost_file_or_model_is_status_1(tmp_path, capsys):
    assert main(["truth", "--cost", str(tmp_path / "no.json")]) == 1
    assert "no.json" in capsys.readouterr().err
    assert main(["calibrate", "--model", str(tmp_path)]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("minivllm-bench: minivllm cannot load")
