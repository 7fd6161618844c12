import json

import pytest
from rich.console import Console

from minivllm_bench.simulate.results import SimulatedRun, to_json, to_table
from minivllm_scheduler import SchedulerConfig
from minivllm_scheduler.simulation import ConstantCost, SimulatedEngine, Trace, TraceRow, simulate


@pytest.fixture
def run():
    config = SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=16, max_model_len=64, max_num_waiting=99)
    engine = SimulatedEngine(config=config, num_blocks=8, block_size=4)
    report = simulate(engine, ConstantCost(0.5), Trace([TraceRow(0.0, 6, 1)] * 3))
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


def test_the_table_has_a_column_per_run(run):
    console = Console(width=80)
    with console.capture() as captured:
        console.print(to_table([run, run]))
    lines = [line.split() for line in captured.get().splitlines()]
    assert ["num_blocks", "8", "8"] in lines
    assert ["requests", "finished", "3", "3"] in lines
    assert ["TTFT", "p50,", "ms", "500.0", "500.0"] in lines
    assert ["TPOT", "p99,", "ms", "-", "-"] in lines
