import pytest

from minivllm_bench.errors import InvalidSetting
from minivllm_bench.simulate.plot import METRICS, check_plot, draw, write_plot
from minivllm_bench.simulate.results import SimulatedRun
from minivllm_scheduler import SchedulerConfig
from minivllm_scheduler.simulation import ConstantCost, SimulatedEngine, Trace, TraceRow, simulate

pytest.importorskip("matplotlib")


def make_run(swept, num_prompt_tokens=6, num_blocks=8):
    config = SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=16, max_model_len=64, max_num_waiting=99)
    engine = SimulatedEngine(config=config, num_blocks=num_blocks, block_size=4)
    report = simulate(engine, ConstantCost(0.5), Trace([TraceRow(0.0, num_prompt_tokens, 5)] * 9))
    return SimulatedRun(swept=swept, report=report, wall_s=0.25)


def curves(runs, metric=None):
    """Points of each labelled line, and the labels of the axes."""
    (axes,) = draw(runs, metric).axes
    lines = {line.get_label(): [*zip(*line.get_data(), strict=True)] for line in axes.lines}
    return lines, axes.get_xlabel(), axes.get_ylabel()


def test_a_sweep_shows_three_percentiles_over_its_values_in_order():
    runs = [make_run({"num_blocks": blocks}, num_blocks=blocks) for blocks in (16, 4, 8)]
    lines, x_label, y_label = curves(runs)
    assert [*lines] == ["TTFT p50, ms", "TTFT p95, ms", "TTFT p99, ms"]
    assert (x_label, y_label) == ("num_blocks", "ms")
    expected = [(run.swept["num_blocks"], run.report.ttft_s.p99_s * 1000) for run in runs]
    assert lines["TTFT p99, ms"] == sorted(expected)


def test_two_sweeps_show_a_line_per_value_of_the_second():
    runs = [
        make_run({"num_blocks": blocks, "victim": victim}, num_blocks=blocks)
        for victim in ("lifo", "cost-aware")
        for blocks in (4, 8)
    ]
    lines, _, y_label = curves(runs, "preemptions")
    assert [*lines] == ["victim lifo", "victim cost-aware"]
    assert y_label == "preemptions"
    assert lines["victim lifo"] == [(4, runs[0].report.num_preemptions), (8, runs[1].report.num_preemptions)]
    assert curves(runs)[2] == "TTFT p99, ms"


def test_words_stand_in_the_order_in_which_they_were_given():
    lines, _, _ = curves([make_run({"victim": "lifo"}), make_run({"victim": "cost-aware"})], "preemptions")
    ((*points,),) = lines.values()
    assert [x for x, _ in points] == ["lifo", "cost-aware"]


def test_one_simulation_shows_its_kv_use():
    run = make_run({})
    figure = draw([run])
    (axes,) = figure.axes
    assert len(axes.lines[0].get_xdata()) == len(run.report.kv_use)
    assert axes.get_title() == "KV use of 8 blocks"


@pytest.mark.parametrize("metric", [None, *METRICS])
def test_a_simulation_that_finished_nothing_has_a_plot_too(metric):
    refused = make_run({"num_blocks": 8}, num_prompt_tokens=60)
    assert refused.report.num_finished == 0
    assert draw([refused], metric).axes
    assert draw([make_run({}, num_prompt_tokens=60)]).axes


@pytest.mark.parametrize("name", ["x.svg", "x.png"])
def test_the_same_runs_give_the_same_file(tmp_path, name):
    runs = [make_run({"num_blocks": blocks}, num_blocks=blocks) for blocks in (4, 8)]
    contents = []
    for _ in range(2):
        write_plot(runs, None, tmp_path / name)
        contents.append((tmp_path / name).read_bytes())
    assert contents[0] == contents[1]


def test_what_cannot_be_drawn_is_refused_by_name(tmp_path):
    with pytest.raises(InvalidSetting, match=r"x\.pdf, it must end in \.png or \.svg"):
        check_plot(tmp_path / "x.pdf", None)
    with pytest.raises(InvalidSetting, match="'speed', it must be one of ttft-p50"):
        check_plot(tmp_path / "x.png", "speed")
