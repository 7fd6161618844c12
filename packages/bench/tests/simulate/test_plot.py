import xml.etree.ElementTree as ET

from minivllm_bench.simulate.plot import to_svg
from minivllm_bench.simulate.results import SimulatedRun
from minivllm_scheduler import SchedulerConfig
from minivllm_scheduler.simulation import ConstantCost, SimulatedEngine, Trace, TraceRow, simulate


def make_run(swept, num_prompt_tokens=6, num_blocks=8):
    config = SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=16, max_model_len=64, max_num_waiting=99)
    engine = SimulatedEngine(config=config, num_blocks=num_blocks, block_size=4)
    report = simulate(engine, ConstantCost(0.5), Trace([TraceRow(0.0, num_prompt_tokens, 5)] * 9))
    return SimulatedRun(swept=swept, report=report, wall_s=0.25)


def lines_and_texts(runs):
    root = ET.fromstring(to_svg(runs))
    tag = "{http://www.w3.org/2000/svg}"
    lines = [line.get("points").split() for line in root.iter(f"{tag}polyline")]
    return lines, [text.text for text in root.iter(f"{tag}text")]


def test_a_sweep_shows_three_percentiles_over_its_values_in_order():
    runs = [make_run({"num_blocks": blocks}, num_blocks=blocks) for blocks in (16, 4, 8)]
    lines, texts = lines_and_texts(runs)
    assert [len(line) for line in lines] == [3, 3, 3]
    assert all(line == sorted(line, key=lambda point: float(point.split(",")[0])) for line in lines)
    assert {"p50", "p95", "p99", "num_blocks", "TTFT, ms"} <= set(texts)


def test_one_simulation_shows_its_kv_use():
    run = make_run({})
    ((*line,), *none), texts = lines_and_texts([run])
    assert not none
    assert len(line) == len(run.report.kv_use)
    assert "KV use, 8 blocks in the pool" in texts


def test_a_simulation_that_finished_nothing_has_a_plot_too():
    refused = make_run({"num_blocks": 8}, num_prompt_tokens=60)
    assert refused.report.num_finished == 0
    assert lines_and_texts([refused])[0]
    refused_alone = make_run({}, num_prompt_tokens=60)
    assert lines_and_texts([refused_alone])[0]
