import random

import pytest

from minivllm_bench.live.calibrate import PHASES, ROUNDS, calibrate, choose_knots, fit
from minivllm_scheduler import SchedulerConfig
from minivllm_scheduler.simulation import (
    LinearCost,
    MeasuredStep,
    SimulatedEngine,
    StepLoad,
    TokenCurve,
    simulate,
)

CONFIG = SchedulerConfig(
    max_num_seqs=64, max_num_batched_tokens=512, max_model_len=4096, max_num_waiting=1000
)


class MachineOfKnownCost:
    """Measures workloads on the simulator; every step takes what `cost` says, give or take some noise."""

    def __init__(self, cost, noise):
        self.cost, self.noise, self.rng = cost, noise, random.Random(1)
        self.steps = []

    def step_s(self, load):
        seconds = self.cost.step_s(load) * self.rng.uniform(1 - self.noise, 1 + self.noise)
        self.steps.append(MeasuredStep(load, seconds))
        return seconds

    def measure(self, workload):
        self.steps = []
        simulate(SimulatedEngine(config=CONFIG, num_blocks=8192), self, workload)
        return self.steps


@pytest.fixture(scope="module")
def calibration():
    curve = TokenCurve((1, 8, 64, 512), (0.03, 0.035, 0.1, 0.5))
    machine = MachineOfKnownCost(LinearCost(token_curve=curve, per_row_s=1e-3, per_context_token_s=1e-6), 0.1)
    told = []
    return calibrate(machine.measure, told.append), told, machine.cost


def test_the_traffic_of_a_calibration_shows_what_steps_cost(calibration):
    found, told, true = calibration
    assert found.num_steps > 300
    assert found.num_held_out > 50
    assert len(told) == ROUNDS * len(PHASES) + 2
    for load in (
        StepLoad(1, 1, 1, 300, 300),
        StepLoad(16, 16, 16, 3000, 3000),
        StepLoad(64, 64, 64, 4000, 4000),
        StepLoad(9, 208, 9, 1800, 20_000),
        StepLoad(1, 512, 0, 512, 131_328),
    ):
        assert found.cost.step_s(load) == pytest.approx(true.step_s(load), rel=0.05)


def test_the_errors_are_those_of_the_noise(calibration):
    found, _, _ = calibration
    for error in (found.fit_error, found.held_out_error):
        assert error.median == pytest.approx(0.05, rel=0.3)
        assert error.p95 == pytest.approx(0.1, rel=0.3)


def steps_of(*sizes):
    return [MeasuredStep(StepLoad(1, size, 1, size, size), 0.1) for size in sizes]


def test_a_knot_stands_where_steps_were_measured():
    assert choose_knots(steps_of(3, 5, 5, 6, 40, 41, 41, 512)) == (3, 5, 41, 512)
    assert choose_knots(steps_of(7)) == (7,)


def test_one_step_is_enough_to_fit():
    found = fit(steps_of(7), steps_of(14))
    assert found.fit_error.max == pytest.approx(0)
    assert found.held_out_error.max == pytest.approx(1)
