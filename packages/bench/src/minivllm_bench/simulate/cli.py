"""The command `minivllm-bench simulate`."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console

from minivllm_bench.errors import InvalidSetting
from minivllm_bench.report_file import require_folder
from minivllm_bench.simulate.options import SimulateOptions
from minivllm_bench.simulate.plan import ENGINE_PARTS, SCHEDULER_LIMITS, plan
from minivllm_bench.simulate.plot import check_plot, write_plot
from minivllm_bench.simulate.results import SimulatedRun, to_json, to_tables
from minivllm_bench.simulate.runner import run_all
from minivllm_scheduler import SchedulerError
from minivllm_scheduler.simulation import SimulatedEngine


def simulate(options: SimulateOptions) -> None:
    """Simulate the engine's own scheduler on a virtual clock: no device, no weights."""
    _check_targets(options)
    with _refusals():
        planned = plan(options)
        runs = run_all(planned)
    _write(runs, options, _settings(options, planned[0].engine))


def _check_targets(options: SimulateOptions) -> None:
    """Finds out before the work that its results have a place to go to."""
    require_folder(options.json_file)
    require_folder(options.plot, "--plot")
    if options.plot is not None:
        check_plot(options.plot, options.plot_metric)


def _settings(options: SimulateOptions, engine: SimulatedEngine) -> dict[str, int | float | str]:
    """The options, and beside them what the engine has where they leave it open."""
    values = dataclasses.asdict(options)
    for part, names in ((engine, ENGINE_PARTS), (engine.config, SCHEDULER_LIMITS)):
        values.update({name: getattr(part, name) for name in names if values[name] is None})
    return {
        name: value if isinstance(value, int | float) else str(value)
        for name, value in values.items()
        if value is not None
    }


def _write(runs: Sequence[SimulatedRun], options: SimulateOptions, settings: Mapping[str, object]) -> None:
    console = Console()
    for table in to_tables(runs):
        console.print(table)
    if options.json_file is not None:
        options.json_file.write_text(to_json(runs, settings), encoding="utf-8")
    if options.plot is not None:
        write_plot(runs, options.plot_metric, options.plot)


@contextmanager
def _refusals() -> Iterator[None]:
    """What the simulator refuses is a bad setting; its message names field, value and limit."""
    try:
        yield
    except SchedulerError as error:
        raise InvalidSetting(str(error)) from error
