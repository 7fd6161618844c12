import dataclasses
import json

import pytest

from minivllm_bench.live.comparison import compare, to_json, to_table
from minivllm_bench.live.live_report import LiveReport
from minivllm_bench.machine import read_machine
from minivllm_scheduler import SchedulerConfig
from minivllm_scheduler.simulation import (
    ConstantCost,
    Distribution,
    SimulatedEngine,
    Trace,
    TraceRow,
    simulate,
)

CONFIG = SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=16, max_model_len=64, max_num_waiting=99)


def simulated(num_output_tokens):
    """Two requests, one after the other, of steps that take a second."""
    trace = Trace([TraceRow(0.0, 4, num_output_tokens), TraceRow(10.0, 4, num_output_tokens)])
    return simulate(SimulatedEngine(config=CONFIG, num_blocks=64, block_size=4), ConstantCost(1.0), trace)


@pytest.fixture
def figures():
    live = LiveReport(
        num_finished=2,
        duration_s=13.0,
        output_tokens_per_s=0.5,
        ttft_s=Distribution.of([0.5, 0.5]),
        tpot_s=Distribution.of([1.0, 1.0]),
        latency_s=Distribution.of([3.0, 5.0]),
    )
    return compare(live, simulated(3))


def test_every_figure_stands_beside_its_simulation(figures):
    by_name = {figure.name: figure for figure in figures}
    assert by_name["TTFT p50, ms"][1:] == (500.0, 1000.0)
    assert by_name["TTFT p95, ms"].difference == 1.0
    assert by_name["TPOT p95, ms"].difference == 0.0
    assert by_name["latency p50, ms"].difference == pytest.approx(-0.25)
    assert by_name["output tokens/s"].simulated == pytest.approx(6 / 13)


def test_what_no_request_has_is_left_out():
    live = LiveReport(
        num_finished=2,
        duration_s=11.0,
        output_tokens_per_s=0.2,
        ttft_s=Distribution.of([1.0]),
        tpot_s=None,
        latency_s=Distribution.of([1.0]),
    )
    assert not any("TPOT" in figure.name for figure in compare(live, simulated(1)))


def test_the_report_has_a_row_per_figure(figures):
    machine = dataclasses.replace(read_machine(), git_commit=None)
    table = to_table(figures, machine)
    assert table.row_count == len(figures) == 7
    assert "do not count: not run from a checkout" in table.caption
    report = json.loads(to_json(figures, {"seed": 7}, machine))
    assert report["reservations"] == ["not run from a checkout"]
    assert report["settings"] == {"seed": 7}
    assert [row["name"] for row in report["rows"]] == [figure.name for figure in figures]
    assert report["rows"][1]["difference"] == figures[1].difference
