import json

import pytest

from minivllm_bench.cli import main

SMALL = ["--requests", "20", "--arrivals", "poisson:50", "--prompt-len", "40", "--output-len", "uniform:1:20"]


def rows(path, *arguments):
    assert main(["simulate", *SMALL, *arguments, "--json", str(path)]) == 0
    return json.loads(path.read_text())["rows"]


def test_a_workload_is_simulated(tmp_path, capsys):
    (row,) = rows(tmp_path / "x.json")
    assert row["num_finished"] == 20
    assert row["num_prompt_tokens"] == 800
    assert row["num_blocks"] == 4096
    assert "output tokens/s" in capsys.readouterr().out


def test_the_json_names_the_limits_that_were_left_open(tmp_path):
    path = tmp_path / "x.json"
    rows(path, "--num-blocks", "64")
    settings = json.loads(path.read_text())["settings"]
    assert (settings["num_blocks"], settings["max_num_seqs"], settings["run_ahead"]) == (64, 256, True)
    assert "prefill_chunk_size" not in settings


def test_a_sweep_is_a_row_per_value(tmp_path):
    found = rows(tmp_path / "x.json", "--sweep", "max_num_seqs=1,8", "--cost", "constant:0.1")
    assert [row["max_num_seqs"] for row in found] == [1, 8]
    assert found[0]["duration_s"] > found[1]["duration_s"]
    blocks = rows(tmp_path / "x.json", "--sweep", "num_blocks=4,64", "--cost", "constant:0.1")
    assert [row["num_blocks"] for row in blocks] == [4, 64]
    assert blocks[0]["kv_use_peak"] > blocks[1]["kv_use_peak"]


def test_two_sweeps_are_a_row_per_pair(tmp_path, capsys):
    sweeps = ["--sweep", "num_blocks=4,64", "--sweep", "victim=lifo,least-computed"]
    found = rows(tmp_path / "x.json", *sweeps, "--cost", "constant:0.1")
    pairs = [(row["num_blocks"], row["victim"]) for row in found]
    assert pairs == [(4, "lifo"), (64, "lifo"), (4, "least-computed"), (64, "least-computed")]
    assert "victim least-computed" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "begins"), [("x.svg", b"<?xml"), ("x.png", b"\x89PNG")])
def test_a_plot_is_written(tmp_path, name, begins):
    pytest.importorskip("matplotlib")
    plot = tmp_path / name
    rows(tmp_path / "x.json", "--plot", str(plot), "--sweep", "num_blocks=16,64")
    assert plot.read_bytes().startswith(begins)


def test_a_plot_without_matplotlib_is_refused_before_the_work(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("minivllm_bench.simulate.plot.find_spec", lambda name: None)
    assert main(["simulate", *SMALL, "--plot", str(tmp_path / "x.svg")]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", "minivllm-bench: --plot needs matplotlib: install minivllm-bench[plot]\n")


def test_a_trace_takes_the_place_of_the_workload(tmp_path):
    trace = tmp_path / "t.csv"
    trace.write_text("arrival_time_s,prompt_tokens,output_tokens\n0,5,3\n1,6,4\n")
    (row,) = rows(tmp_path / "x.json", "--trace", str(trace))
    assert (row["num_finished"], row["num_output_tokens"]) == (2, 7)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["--shared-prefix", "1:64"], "num_cached_tokens"),
        (["--turns", "4", "--turn-gap-s", "0.5"], "num_cached_tokens"),
        (
            ["--num-blocks", "9", "--admission", "watermark", "--victim", "least-computed"],
            "num_recomputed_tokens",
        ),
        (["--max-tokens", "19"], "num_discarded_tokens"),
        (["--max-num-waiting", "1", "--cost", "constant:1", "--max-num-seqs", "1"], "num_refused"),
    ],
)
def test_options_reach_the_simulator(tmp_path, arguments, field):
    (row,) = rows(tmp_path / "x.json", *arguments)
    assert row[field] > 0


def test_reserving_all_never_preempts(tmp_path):
    (row,) = rows(tmp_path / "x.json", "--num-blocks", "9", "--admission", "reserve-all")
    assert row["num_preemptions"] == 0


def test_an_order_favours_the_urgent_class(tmp_path):
    classes = ["--classes", "chat:0:1,batch:9:1", "--cost", "constant:0.1", "--max-num-seqs", "1"]
    ratios = []
    for order in ("fcfs", "priority:60"):
        (row,) = rows(tmp_path / "x.json", *classes, "--order", order)
        batch, chat = (each["ttft_s"]["p50_s"] for each in row["classes"])
        ratios.append(batch / chat)
    assert ratios[1] > 3 * ratios[0]


def test_the_limits_of_the_scheduler_reach_it(tmp_path):
    queue = ["--cost", "linear:per_token_s=0.01", "--arrivals", "poisson:1000", "--num-blocks", "20"]
    found = [
        rows(tmp_path / "x.json", *queue, *limit)[0]
        for limit in ([], ["--prefill-chunk-size", "4"], ["--watermark", "0.8"])
    ]
    assert len({row["num_steps"] for row in found}) == 3


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--requests", "0"], "--requests"),
        (["--num-blocks", "0"], "--num-blocks"),
        (["--block-size", "-1"], "--block-size"),
        (["--arrivals", "poisson:-1"], "rate_per_s is -1"),
        (["--turn-gap-s", "-1"], "think_time_s is -1"),
        (["--max-num-seqs", "0"], "max_num_seqs is 0"),
        (["--max-num-seqs", "9999"], "max_num_batched_tokens is 2048"),
        (["--host-s", "-1"], "host_s is -1"),
        (["--victim", "random"], "random"),
        (["--order", "random"], "random"),
        (["--classes", "a"], "TENANT:PRIORITY:SHARE"),
        (["--max-tokens", "0"], "--max-tokens"),
        (["--watermark", "1"], "watermark is 1"),
        (["--prefill-chunk-size", "0"], "prefill_chunk_size is 0"),
        (["--max-overtaking", "-1"], "max_overtaking is -1"),
        (["--sweep", "num_blocks=1,2", "--sweep", "num_blocks=3,4"], "num_blocks, num_blocks"),
        (["--plot-metric", "x", "--plot", "x.svg"], "ttft-p99"),
        (["--sweep", "num_blocks=0"], "num_blocks=0"),
        (["--sweep", "max_num_seqs=9999"], "max_num_batched_tokens is 2048"),
        (["--json", "no/such/folder/x.json"], "no/such/folder"),
        (["--plot", "no/such/folder/x.svg"], "no/such/folder"),
        (["--plot", "x.pdf"], "x.pdf"),
    ],
)
def test_a_bad_value_is_one_line_and_status_2(arguments, named, capsys):
    assert main(["simulate", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("minivllm-bench: ")
    assert err.count("\n") == 1
    assert named in err


def test_a_bad_trace_is_named_with_line_field_and_value(tmp_path, capsys):
    trace = tmp_path / "t.csv"
    trace.write_text("arrival_time_s,prompt_tokens,output_tokens\n0,5,3\n1,-6,4\n")
    assert main(["simulate", "--trace", str(trace)]) == 2
    assert "line 3: prompt_tokens is -6, " in capsys.readouterr().err


def test_a_missing_trace_is_status_1(tmp_path, capsys):
    assert main(["simulate", "--trace", str(tmp_path / "no.csv")]) == 1
    assert "no.csv" in capsys.readouterr().err
