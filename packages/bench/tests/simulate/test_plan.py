import dataclasses

import pytest

from minivllm_bench.engines.interface import EngineSettings
from minivllm_bench.errors import InvalidSetting
from minivllm_bench.live.calibrate import Calibration
from minivllm_bench.live.cost_file import to_json
from minivllm_bench.machine import read_machine
from minivllm_bench.simulate.options import ENGINE, SWEPT, SimulateOptions
from minivllm_bench.simulate.plan import plan
from minivllm_scheduler import SchedulerConfig
from minivllm_scheduler.simulation import LinearCost, PredictionError, SimulatedEngine

CALIBRATED = SimulatedEngine(
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
    run_ahead=False,
)


def test_without_a_sweep_there_is_one_simulation():
    (run,) = plan(SimulateOptions(num_blocks=7, order="priority:3"))
    assert run.swept == {}
    assert run.engine.num_blocks == 7
    assert run.engine.order.ageing_s == 3.0
    assert run.workload.num_requests == 1000


@pytest.fixture
def cost_file(tmp_path):
    """Of an engine that differs from the default one in every limit."""
    error = PredictionError(0.0, 0.0, 0.0)
    calibration = Calibration(
        cost=LinearCost(base_s=1.0), num_steps=1, fit_error=error, num_held_out=1, held_out_error=error
    )
    settings = EngineSettings(model="m", dtype="float32", device="cpu", num_threads=1)
    path = tmp_path / "cost.json"
    path.write_text(to_json(calibration, settings, CALIBRATED, read_machine()))
    return path


def test_the_engine_is_the_default_one_unless_the_options_say_otherwise():
    (run,) = plan(SimulateOptions())
    assert run.engine == ENGINE
    (run,) = plan(SimulateOptions(max_num_seqs=7, prefix_caching=False))
    config = dataclasses.replace(ENGINE.config, max_num_seqs=7)
    assert run.engine == dataclasses.replace(ENGINE, config=config, prefix_caching=False)


def test_a_cost_file_brings_its_engine_and_the_options_win(cost_file):
    (run,) = plan(SimulateOptions(cost=str(cost_file)))
    assert run.engine == CALIBRATED
    given = {"num_blocks": 6, "run_ahead": True, "watermark": 0.0, "max_num_waiting": 8}
    (run,) = plan(SimulateOptions(cost=str(cost_file), **given))
    config = dataclasses.replace(CALIBRATED.config, watermark=0.0, max_num_waiting=8)
    assert run.engine == dataclasses.replace(CALIBRATED, config=config, num_blocks=6, run_ahead=True)


def test_a_sweep_changes_the_engine_of_the_cost_file(cost_file):
    runs = plan(SimulateOptions(cost=str(cost_file), sweep=["max_num_batched_tokens=200,300"]))
    assert [run.engine.config.max_num_batched_tokens for run in runs] == [200, 300]
    assert {run.engine.num_blocks for run in runs} == {CALIBRATED.num_blocks}


def test_the_first_sweep_changes_fastest():
    runs = plan(SimulateOptions(sweep=["num_blocks=1,2", "arrivals=poisson:1,poisson:2"]))
    found = [(run.engine.num_blocks, run.workload.arrivals.rate_per_s) for run in runs]
    assert found == [(1, 1.0), (2, 1.0), (1, 2.0), (2, 2.0)]


def test_simulations_share_no_order_that_keeps_state():
    runs = plan(SimulateOptions(order="fair-share", sweep=["num_blocks=1,2"]))
    assert runs[0].engine.order is not runs[1].engine.order


def test_every_swept_name_is_an_option():
    assert set(SWEPT) <= {field.name for field in dataclasses.fields(SimulateOptions)}


@pytest.mark.parametrize("sweep", [["seed=1", "num_blocks=1", "requests=1"], ["seed=1", "seed=2"]])
def test_more_than_two_sweeps_or_one_setting_twice_are_refused(sweep):
    with pytest.raises(InvalidSetting, match="at most 2 settings"):
        plan(SimulateOptions(sweep=sweep))
