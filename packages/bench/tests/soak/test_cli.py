import json
import shlex
import sys
from pathlib import Path

import pytest

from minivllm_bench.cli import main

FAULTY = Path(__file__).with_name("faulty_server.py")
SHORT = [
    "--minutes",
    "0.05",
    "--cases",
    "6",
    "--input-len",
    "20",
    "--output-len",
    "5",
    "--burst-every-s",
    "0.5",
]


def command(*words):
    return shlex.join([sys.executable, *map(str, words)])


def test_a_running_server_is_soaked(server, tmp_path, capsys):
    json_file = tmp_path / "x.json"
    assert main(["soak", *SHORT, "--url", server.url, "--json", str(json_file)]) == 0
    out = capsys.readouterr().out
    assert "not seen" in out
    report = json.loads(json_file.read_text())
    assert report["num_faults"] == 0
    assert {check["has_passed"] for check in report["checks"]} == {True, None}
    assert report["metrics"]["minivllm:engine_steps_total"] > 0


def test_a_kind_that_does_not_exist_is_refused_before_a_server_starts(capsys):
    assert main(["soak", "--kinds", "greedy,odd", "--start", "false"]) == 2
    assert "'odd' is not a valid Kind; there are greedy, sampled" in capsys.readouterr().err


def test_a_started_server_that_errs_fails_the_soak_and_leaves_its_log(capsys):
    start = command(FAULTY, "{port}", "falling")
    assert main(["soak", *SHORT, "--start", start]) == 1
    out, err = capsys.readouterr()
    assert "engine_steps_total fell" in " ".join(out.split())
    (line,) = err.splitlines()
    assert line.startswith("minivllm-bench: the soak failed")
    assert "no answer lost, crossed or changed" in line
    assert "server ends with status 0" in line  # it ends by a signal
    log = Path(line.rpartition("(log: ")[2].removesuffix(")"))
    assert log.read_text() == "falling\n"
    log.unlink()


def test_a_server_that_cannot_answer_one_request_alone_is_not_soaked(server, capsys):
    server.fault = "broken"
    assert main(["soak", *SHORT, "--url", server.url]) == 1
    assert "a request alone failed: fault: status 500" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--minutes", "0"], "--minutes"),
        (["--visitors", "0"], "--visitors"),
        (["--url", "nowhere"], "nowhere"),
        (["--start", "minivllm serve"], "{port}"),
        (["--json", "no/such/folder/x.json"], "no/such/folder"),
    ],
)
def test_a_bad_value_is_one_line_and_status_2(arguments, named, capsys):
    assert main(["soak", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("minivllm-bench: ")
    assert named in err


@pytest.mark.slow
def test_our_own_server_bears_a_short_soak(tiny_llama, tmp_path):
    pytest.importorskip("minivllm_server")
    program = Path(sys.executable).with_name("minivllm")
    settings = [
        "--num-threads",
        1,
        "--dtype",
        "float32",
        "--max-num-seqs",
        8,
        "--max-num-waiting",
        16,
        "--num-blocks",
        32,
    ]
    start = shlex.join(map(str, [program, "serve", "--model", tiny_llama, "--port", "{port}", *settings]))
    json_file = tmp_path / "x.json"
    arguments = [
        "--start",
        start,
        "--kinds",
        "greedy,sampled,penalized,logprobs",
        "--vocab-size",
        "128",
        "--burst-every-s",
        "3",
        "--output-len",
        "150",
        "--json",
        str(json_file),
    ]
    assert main(["soak", "--minutes", "0.25", *arguments]) == 0
    report = json.loads(json_file.read_text())
    # All but what takes longer to be seen.
    assert [check["name"] for check in report["checks"] if not check["has_passed"]] == ["memory is flat"]
    seen = {(visit["kind"], visit["end"]) for visit in report["visits"]}
    assert {("burst", "queue full"), ("stream", "answered"), ("leaves", "left")} <= seen
    assert report["metrics"]["minivllm:num_preemptions_total"] > 0
