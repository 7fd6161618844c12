import json
import shlex
import sys
from pathlib import Path

import pytest

from minivllm_bench.cli import main
from minivllm_bench.serve.cli import parse_loads
from minivllm_bench.serve.load import RequestRate, Streams

SMALL = ["--input-len", "4", "--output-len", "2", "--repeats", "1"]
SCRIPTED = f"{sys.executable} {Path(__file__).with_name('scripted_server.py')} {{port}}"


def test_running_and_started_servers_are_compared(scripted, tmp_path, capsys):
    json_file = tmp_path / "x.json"
    arguments = [
        "--url",
        scripted.url,
        "--start",
        SCRIPTED,
        "--name",
        "one",
        "--name",
        "two",
        "--concurrency",
        "1,3",
    ]
    assert (
        main(["serve", *SMALL, *arguments, "--processes", "2", "--api-key", "k", "--json", str(json_file)])
        == 0
    )
    out = capsys.readouterr().out
    assert "one" in out
    assert "÷ this" in out
    report = json.loads(json_file.read_text())
    assert [(row["server"], row["load"]) for row in report["rows"]] == [
        ("one", "1 stream"),
        ("two", "1 stream"),
        ("one", "3 streams"),
        ("two", "3 streams"),
    ]
    assert all(row["errors"] == {} for row in report["rows"])
    assert report["settings"]["commands"] == {"two": SCRIPTED}
    assert report["settings"]["models"] == {"one": "scripted", "two": "scripted"}
    assert scripted.script.requests[0][1]["Authorization"] == "Bearer k"


def test_a_rate_a_model_and_a_number_of_requests_reach_the_server(scripted, capsys):
    arguments = ["--url", scripted.url, "--request-rate", "200", "--num-requests", "9", "--model", "m"]
    assert main(["serve", *SMALL, *arguments]) == 0
    assert "200 requests/s" in capsys.readouterr().out
    assert len(scripted.script.requests) == 8 + 9
    assert {body["model"] for body, _ in scripted.script.requests} == {"m"}


@pytest.mark.parametrize(
    ("concurrency", "rate", "loads"),
    [
        ("1,4", None, (Streams(1), Streams(4))),
        ("1", "0.5, 2", (RequestRate(0.5), RequestRate(2.0))),
    ],
)
def test_loads_are_parsed(concurrency, rate, loads):
    assert parse_loads(concurrency, rate) == loads


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--concurrency", "0"], "0"),
        (["--concurrency", "4,4"], "twice"),
        (["--concurrency", "many"], "many"),
        (["--request-rate", "-1"], "-1"),
        (["--request-rate", "1,"], "--request-rate 1,"),
        (["--processes", "0"], "--processes"),
        (["--input-len", "0"], "--input-len"),
        (["--url", "localhost"], "localhost"),
        (["--url", "http://x", "--url", "http://x"], "--name"),
        (["--url", "http://x", "--name", "a", "--name", "b"], "2 --name for 1"),
        (["--url", "http://x", "--model", "a", "--model", "b"], "2 --model for 1"),
        (["--start", "minivllm serve"], "{port}"),
        (["--start", " "], "{port}"),
        (["--json", "no/such/folder/x.json"], "no/such/folder"),
    ],
)
def test_a_bad_value_is_one_line_and_status_2(arguments, named, capsys):
    assert main(["serve", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("minivllm-bench: ")
    assert named in err


def test_no_server_is_status_1(capsys):
    assert main(["serve", "--url", "http://127.0.0.1:1"]) == 1
    assert "no answer from 127.0.0.1:1" in capsys.readouterr().err


@pytest.mark.slow
def test_our_own_server_is_measured(tiny_llama, tmp_path):
    pytest.importorskip("minivllm_server")
    program = Path(sys.executable).with_name("minivllm")
    command = shlex.join(
        [str(program), "serve", "--model", str(tiny_llama), "--port", "{port}", "--num-threads", "1"]
    )
    json_file = tmp_path / "x.json"
    arguments = ["--start", command, "--vocab-size", "128", "--concurrency", "2", "--json", str(json_file)]
    assert main(["serve", *SMALL, *arguments]) == 0
    (row,) = json.loads(json_file.read_text())["rows"]
    assert row["errors"] == {}
    assert row["num_requests"] == 8
    assert row["output_tokens_per_s"] > 0
    assert row["ttft"]["p50_ms"] > 0
