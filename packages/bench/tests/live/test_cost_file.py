import json

import pytest

from minivllm_bench.engines.interface import EngineSettings
from minivllm_bench.errors import InvalidSetting
from minivllm_bench.live.calibrate import Calibration
from minivllm_bench.live.cost_file import read_cost_file, to_json
from minivllm_bench.machine import read_machine
from minivllm_bench.simulate.specs import Cost, parse_cost
from minivllm_scheduler import SchedulerConfig
from minivllm_scheduler.simulation import LinearCost, PredictionError, SimulatedEngine, TokenCurve

ENGINE = SimulatedEngine(
    config=SchedulerConfig(
        max_num_seqs=7,
        max_num_batched_tokens=99,
        max_model_len=123,
        max_num_waiting=11,
        watermark=0.25,
        prefill_chunk_size=5,
        max_overtaking=3,
    ),
    num_blocks=77,
    block_size=8,
    prefix_caching=False,
    run_ahead=True,
)
SETTINGS = EngineSettings(model="smollm2", dtype="bfloat16", device="cpu", num_threads=2)


def written(cost):
    error = PredictionError(0.01, 0.02, 0.03)
    calibration = Calibration(cost=cost, num_steps=9, fit_error=error, num_held_out=3, held_out_error=error)
    return to_json(calibration, SETTINGS, ENGINE, read_machine())


@pytest.mark.parametrize(
    "cost",
    [
        LinearCost(per_row_s=1e-4, token_curve=TokenCurve((1, 512), (0.03, 0.5))),
        LinearCost(base_s=0.01, per_attention_pair_s=1e-9),
    ],
)
def test_a_file_that_was_written_is_read_back(tmp_path, cost):
    path = tmp_path / "cost.json"
    path.write_text(written(cost))
    read = read_cost_file(path)
    assert (read.settings, read.engine, read.cost) == (SETTINGS, ENGINE, cost)
    assert parse_cost("--cost", str(path)) == Cost(cost, ENGINE)


def test_the_errors_stand_in_the_file():
    report = json.loads(written(LinearCost(base_s=1.0)))
    assert report["held_out"] == {"steps": 3, "median": 0.01, "p95": 0.02, "max": 0.03}
    assert report["fit"]["steps"] == 9


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda report: report.update(schema=99), "schema 99, it must be 2: calibrate again"),
        (lambda report: report.update(schema=1), "schema 1, it must be 2: calibrate again"),
        (lambda report: report.pop("engine"), "KeyError"),
        (lambda report: report["engine"].update(num_blocks=0), "num_blocks is 0"),
        (lambda report: report["engine"].update(num_blocks="many"), "not a file that calibrate wrote"),
        (lambda report: report["engine"]["config"].update(max_num_seqs=0), "max_num_seqs is 0"),
        (lambda report: report.pop("cost"), "KeyError"),
        (lambda report: report["cost"].update(per_row_s=-1.0), "per_row_s is -1"),
        (lambda report: report["cost"].update(per_row_s="x"), "not a file that calibrate wrote"),
        (lambda report: report["cost"].update(per_moon_s=1.0), "per_moon_s"),
        (lambda report: report["settings"].pop("model"), "model"),
        (lambda report: report["cost"]["token_curve"].update(knots=[5, 1]), "ascend"),
        (lambda report: report["cost"].update(token_curve=3), "not a file that calibrate wrote"),
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path, change, named):
    report = json.loads(written(LinearCost(token_curve=TokenCurve((1, 512), (0.03, 0.5)))))
    change(report)
    path = tmp_path / "cost.json"
    path.write_text(json.dumps(report))
    with pytest.raises(InvalidSetting, match=named) as refused:
        read_cost_file(path)
    assert "cost.json" in str(refused.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "3", "\xff"])
def test_a_file_of_another_kind_is_refused(tmp_path, text):
    path = tmp_path / "cost.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(InvalidSetting, match="not a file that calibrate wrote"):
        read_cost_file(path)
