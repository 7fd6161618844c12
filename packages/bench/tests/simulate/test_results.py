import json
from dataclasses import replace

import pytest
from rich.console import Console

from minivllm_bench.simulate.results import SimulatedRun, to_json, to_tables
from minivllm_scheduler import SchedulerConfig
from minivllm_scheduler.simulation import (
    ConstantCost,
    FixedLength,
    PoissonArrivals,
    RequestClass,
    SimulatedEngine,
    SyntheticWorkload,
    Trace,
    TraceRow,
    simulate,
)

ENGINE = SimulatedEngine(
    config=SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=16, max_model_len=64, max_num_waiting=99),
    num_blocks=8,
    block_size=4,
)


@pytest.fixture
def run():
    report = simulate(ENGINE, ConstantCost(0.5), Trace([TraceRow(0.0, 6, 1)] * 3))
    return SimulatedRun(swept={"num_blocks": 8}, report=report, wall_s=0.25)


def test_json_has_a_row_per_run(run):
    found = json.loads(to_json([run, run], {"seed": 3}))
    assert found["schema"] == 1
    assert found["settings"] == {"seed": 3}
    assert len(found["rows"]) == 2
    row = found["rows"][0]
    assert (row["num_blocks"], row["num_finished"], row["rows_per_s"]) == (8, 3, run.report.num_rows / 0.25)
    assert row["ttft_s"]["p50_s"] == run.report.ttft_s.p50_s
    assert row["tpot_s"] is None


def lines_of(runs):
    """Cells of every line of all tables."""
    console = Console(width=80)
    with console.capture() as captured:
        for table in to_tables(runs):
            console.print(table)
    return [line.split() for line in captured.get().splitlines()]


def test_the_table_has_a_column_per_run(run):
    lines = lines_of([run, run])
    assert ["num_blocks", "8", "8"] in lines
    assert ["requests", "finished", "3", "3"] in lines
    assert ["TTFT", "p50,", "ms", "500.0", "500.0"] in lines
    assert ["TPOT", "p99,", "ms", "-", "-"] in lines
    assert not any("priority" in line for line in lines)


def test_a_second_sweep_makes_a_table_for_each_of_its_values(run):
    runs = [
        replace(run, swept={"num_blocks": blocks, "victim": victim})
        for victim in ("lifo", "x")
        for blocks in (8, 9)
    ]
    lines = lines_of(runs)
    assert [line for line in lines if line[:1] == ["victim"]] == [["victim", "lifo"], ["victim", "x"]]
    assert lines.count(["num_blocks", "8", "9"]) == 2


def test_classes_have_lines_of_their_own():
    classes = (RequestClass("a", 0), RequestClass("b", 3))
    workload = SyntheticWorkload(
        num_requests=30,
        arrivals=PoissonArrivals(1.0),
        prompt_tokens=FixedLength(6),
        output_tokens=FixedLength(1),
        classes=classes,
    )
    lines = lines_of(
        [SimulatedRun(swept={}, report=simulate(ENGINE, ConstantCost(0.5), workload), wall_s=0.25)]
    )
    for name, priority in (("a,", "0:"), ("b,", "3:")):
        assert any(line[:5] == [name, "priority", priority, "TTFT", "p50,"] for line in lines)
