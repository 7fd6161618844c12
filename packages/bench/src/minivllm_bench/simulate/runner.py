"""Runs the simulations of one command, with a progress bar on stderr."""

import time
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from minivllm_bench.simulate.results import SimulatedRun
from minivllm_scheduler.simulation import CostModel, SimulatedEngine, SimulationReport, Workload, simulate

PROGRESS_UPDATES = 200
"""Times that the bar moves in one simulation, at most."""


def run_all(
    engines: Sequence[tuple[Mapping[str, int], SimulatedEngine]], cost: CostModel, workload: Workload
) -> tuple[SimulatedRun, ...]:
    """Simulates `workload` on each engine.

    Args:
        engines: What a sweep changed, and the engine with that change.
        cost: How long steps take.
        workload: The same for every engine.

    Raises:
        SimulationError: The simulator refuses the settings.
    """
    runs: list[SimulatedRun] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        for swept, engine in engines:
            label = " ".join(f"{name}={value}" for name, value in swept.items())
            task = bar.add_task(label or "simulating", total=workload.num_requests)
            started_s = time.perf_counter()
            report = _run(bar, task, engine, cost, workload)
            runs.append(SimulatedRun(swept=swept, report=report, wall_s=time.perf_counter() - started_s))
    return tuple(runs)


def _run(
    bar: Progress, task: TaskID, engine: SimulatedEngine, cost: CostModel, workload: Workload
) -> SimulationReport:
    stride = max(1, workload.num_requests // PROGRESS_UPDATES)
    shown = 0

    def show(num_done: int) -> None:
        nonlocal shown
        if num_done - shown >= stride:
            shown = num_done
            bar.update(task, completed=num_done)

    return simulate(engine, cost, workload, progress=show)
