import dataclasses

import pytest

from minivllm_bench.errors import InvalidSetting
from minivllm_bench.simulate.options import SWEPT, SimulateOptions
from minivllm_bench.simulate.plan import plan


def test_without_a_sweep_there_is_one_simulation():
    (run,) = plan(SimulateOptions(num_blocks=7, order="priority:3"))
    assert run.swept == {}
    assert run.engine.num_blocks == 7
    assert run.engine.order.ageing_s == 3.0
    assert run.workload.num_requests == 1000


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
