import dataclasses
import io
import json

import pytest
from rich.console import Console

from minivllm_bench import scheduler_command
from minivllm_bench.cli import main
from minivllm_bench.machine import MachineFacts
from minivllm_bench.scheduler_bench import CallCost, StepCost
from minivllm_bench.scheduler_command import SchedulerFigures, to_json, to_tables

MACHINE = MachineFacts(
    cpu_model="A CPU with a long name @ 2.60GHz",
    num_cpus=2,
    isa_flags=(),
    memory_bytes=1 << 30,
    gpus=(),
    operating_system="Linux 6",
    python="3.11.7",
    versions={},
    git_commit="0123456789abcdef",
    git_dirty=True,
)


def step(running, num_blocks):
    return StepCost(
        running=running,
        num_blocks=num_blocks,
        schedule_us=99_999.94,
        schedule_p99_us=99_999.94,
        update_us=99_999.94,
        update_p99_us=99_999.94,
    )


FIGURES = SchedulerFigures(
    steps=(step(1, 30), step(65_536, 10_000_000)),
    large_pool=step(256, 1_000_000),
    calls=(CallCost(call="allocate 8 blocks", num_blocks=1_000_000, us=1.5, p99_us=20.0),),
    bytes_per_block=112.4,
)


def test_the_json_has_a_row_per_size_and_says_what_is_doubtful():
    report = json.loads(to_json(FIGURES, MACHINE, 256))
    assert report["rows"] == [dataclasses.asdict(cost) for cost in FIGURES.steps]
    assert set(report["rows"][0]) == {
        "running",
        "num_blocks",
        "schedule_us",
        "schedule_p99_us",
        "update_us",
        "update_p99_us",
    }
    assert report["large_pool"] == dataclasses.asdict(FIGURES.large_pool)
    assert report["calls"] == [dataclasses.asdict(FIGURES.calls[0])]
    assert (report["schema"], report["bytes_per_block"], report["settings"]) == (1, 112.4, {"steps": 256})
    assert report["reservations"] == ["the checkout has uncommitted changes"]


def test_the_largest_numbers_fit_80_columns():
    console = Console(file=io.StringIO(), width=80)
    for table in to_tables(FIGURES, MACHINE, 256):
        console.print(table)
    text = console.file.getvalue()
    assert text.count("99,999.9") == 3 * 4
    for cell in ("65536", "10,000,000", "199999.88", "112 bytes", "allocate 8 blocks", "uncommitted"):
        assert cell in text


def test_the_command_measures_prints_and_writes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scheduler_command, "LARGE_POOL_BLOCKS", 10_000)  # a million takes seconds to build
    file = tmp_path / "figures.json"
    assert main(["scheduler", "--running", "2,8", "--steps", "20", "--json", str(file)]) == 0
    report = json.loads(file.read_text())
    assert [row["running"] for row in report["rows"]] == [2, 8]
    assert report["large_pool"]["num_blocks"] == 10_000
    assert {call["num_blocks"] for call in report["calls"]} == {1000, 10_000}
    assert "match a new prompt" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--running", "0"], "'0'"),
        (["--steps", "0"], "--steps"),
        (["--json", "no/such/folder/x.json"], "no/such/folder"),
    ],
)
def test_a_bad_value_is_one_line_and_status_2(arguments, named, capsys):
    assert main(["scheduler", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert named in err
