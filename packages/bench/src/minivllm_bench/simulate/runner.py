"""Runs the simulations of one command, with a progress bar on stderr."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from minivllm_bench.simulate.results import SimulatedRun, Swept
from minivllm_scheduler.simulation import CostModel, SimulatedEngine, SimulationReport, Workload, simulate

PROGRESS_UPDATES = 200
"""Times that the bar moves in one simulation, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """One simulation to do.

    Attributes:
        swept: Settings that a sweep gave a value, and the value.
        engine, cost, workload: What is simulated.
    """

    swept: Mapping[str, Swept]
    engine: SimulatedEngine
    cost: CostModel
    workload: Workload


def run_all(plan: Sequence[PlannedRun]) -> tuple[SimulatedRun, ...]:
    """Does the simulations, one after the other.

    Raises:
        SimulationError: The simulator refuses the settings.
    """
    runs: list[SimulatedRun] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        for planned in plan:
            label = " ".join(f"{name}={value}" for name, value in planned.swept.items())
            task = bar.add_task(label or "simulating", total=planned.workload.num_requests)
            started_s = time.perf_counter()
            report = _run(bar, task, planned)
            wall_s = time.perf_counter() - started_s
            runs.append(SimulatedRun(swept=planned.swept, report=report, wall_s=wall_s))
    return tuple(runs)


def _run(bar: Progress, task: TaskID, planned: PlannedRun) -> SimulationReport:
    stride = max(1, planned.workload.num_requests // PROGRESS_UPDATES)
    shown = 0

    def show(num_done: int) -> None:
        nonlocal shown
        if num_done - shown >= stride:
            shown = num_done
            bar.update(task, completed=num_done)

    return simulate(planned.engine, planned.cost, planned.workload, progress=show)
