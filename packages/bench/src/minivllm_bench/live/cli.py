"""The commands `minivllm-bench calibrate` and `minivllm-bench truth`."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from minivllm_bench.engines.interface import EngineSettings
from minivllm_bench.errors import InvalidSetting, MissingExtra
from minivllm_bench.live import comparison, cost_file
from minivllm_bench.live.calibrate import Calibration, calibrate
from minivllm_bench.live.live_report import LiveReport
from minivllm_bench.machine import MachineFacts, read_machine
from minivllm_bench.placement import DeviceChoice, DTypeChoice, default_threads, resolve_device, resolve_dtype
from minivllm_bench.report_file import require_folder
from minivllm_bench.reservations import caption, checkout_reservations
from minivllm_bench.simulate import options
from minivllm_bench.simulate.specs import parse_arrivals, parse_length
from minivllm_scheduler.simulation import (
    MeasuredStep,
    SimulatedEngine,
    SimulationError,
    SyntheticWorkload,
    Workload,
    simulate,
)

if TYPE_CHECKING:
    from minivllm_bench.live.live_engine import LiveEngine

WARM_UP_REQUESTS: Final = 8
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateOptions:
    """What to calibrate; the help of each option says what it is."""

    model: Annotated[str, typer.Option(help="smollm2, a folder, a .gguf file or a hub id.")] = "smollm2"
    dtype: Annotated[DTypeChoice, typer.Option(help="Of weights, activations and KV cache.")] = "auto"
    device: Annotated[DeviceChoice, typer.Option(help="Where the engine runs.")] = "auto"
    num_threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads; PyTorch's choice if not given.")
    ] = None
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the cost model to this file.")] = (
        None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TruthOptions:
    """What to serve and to simulate; the help of each option says what it is."""

    cost: Annotated[Path, typer.Option(help="What calibrate wrote on this machine.")]
    requests: options.Requests = 240
    arrivals: options.Arrivals = "poisson:2"
    prompt_len: options.PromptLen = "lognormal:80:0.7"
    output_len: options.OutputLen = "uniform:8:64"
    seed: options.Seed = 7
    json_file: options.JsonFile = None


def calibrate_engine(chosen: CalibrateOptions) -> None:
    """Run the real engine on this machine, fit a cost model for `simulate` to its steps, and say its error."""
    require_folder(chosen.json_file)
    target = resolve_device(chosen.device)
    settings = EngineSettings(
        model=chosen.model,
        dtype=resolve_dtype(chosen.dtype, target, chosen.model),
        device=target,
        num_threads=chosen.num_threads or default_threads(),
    )
    machine = read_machine()

    def run(engine: "LiveEngine", announce: Callable[[str], None]) -> Calibration:
        def measure(workload: Workload) -> Sequence[MeasuredStep]:
            engine.serve(workload)
            return engine.take_steps()

        return calibrate(measure, announce)

    calibration, engine = _with_engine(settings, run)
    Console().print(_table(calibration, settings, machine))
    if chosen.json_file is not None:
        report = cost_file.to_json(calibration, settings, engine, machine)
        chosen.json_file.write_text(report, encoding="utf-8")


def truth(chosen: TruthOptions) -> None:
    """Serve a workload for real, simulate it at the calibrated cost, and compare."""
    require_folder(chosen.json_file)
    calibrated = cost_file.read_cost_file(chosen.cost)
    workload = _workload(chosen)
    machine = read_machine()

    def run(engine: "LiveEngine", announce: Callable[[str], None]) -> LiveReport:
        announce("warm-up")
        num_requests = min(chosen.requests, WARM_UP_REQUESTS)
        engine.serve(dataclasses.replace(workload, num_requests=num_requests, seed=chosen.seed + 1))
        announce(f"{chosen.requests} requests in real time")
        return engine.serve(workload)

    live, simulated = _with_engine(calibrated.settings, run)
    figures = comparison.compare(live, simulate(simulated, calibrated.cost, workload))
    Console().print(comparison.to_table(figures, machine))
    if chosen.json_file is not None:
        settings = dataclasses.asdict(chosen) | {"cost": str(chosen.cost), "json_file": str(chosen.json_file)}
        chosen.json_file.write_text(comparison.to_json(figures, settings, machine), encoding="utf-8")


def _workload(chosen: TruthOptions) -> SyntheticWorkload:
    try:
        return SyntheticWorkload(
            num_requests=chosen.requests,
            arrivals=parse_arrivals("--arrivals", chosen.arrivals),
            prompt_tokens=parse_length("--prompt-len", chosen.prompt_len),
            output_tokens=parse_length("--output-len", chosen.output_len),
            seed=chosen.seed,
        )
    except SimulationError as error:
        raise InvalidSetting(str(error)) from error


def _with_engine(
    settings: EngineSettings, run: Callable[["LiveEngine", Callable[[str], None]], T]
) -> tuple[T, SimulatedEngine]:
    """What `run` returns for a loaded engine, and that engine for the simulator; a status line says what goes on."""
    try:
        from minivllm_bench.live.live_engine import LiveEngine
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"calibrate and truth need the module {error.name}: install minivllm-bench[engine]"
        ) from error
    with Console(stderr=True).status(f"loading {settings.model}") as status:
        engine = LiveEngine.load(settings)
        return run(engine, status.update), engine.simulated


def _table(calibration: Calibration, settings: EngineSettings, machine: MachineFacts) -> Table:
    """The terms of the cost model in microseconds, and its error."""
    table = Table(
        title=f"{settings.model}, {settings.dtype}, {settings.device}, {settings.num_threads} threads",
        caption=caption(machine.summary, checkout_reservations(machine)),
        caption_justify="left",
        box=SIMPLE_HEAD,
    )
    table.add_column("term", no_wrap=True)
    table.add_column("", justify="right", no_wrap=True)
    cost = calibration.cost
    if cost.token_curve is not None:
        for knot, seconds in zip(cost.token_curve.knots, cost.token_curve.seconds, strict=True):
            table.add_row(f"{knot} tokens, µs", f"{seconds * 1e6:,.0f}")
    for label, seconds in (
        ("row, µs", cost.per_row_s),
        ("row that samples, µs", cost.per_sample_s),
        ("context token, µs", cost.per_context_token_s),
        ("attention pair, µs", cost.per_attention_pair_s),
    ):
        table.add_row(label, f"{seconds * 1e6:,.3f}")
    table.add_section()
    for label, count, error in (
        ("fitted steps", calibration.num_steps, calibration.fit_error),
        ("held-out steps", calibration.num_held_out, calibration.held_out_error),
    ):
        table.add_row(f"{label}: {count:,}, median and p95 error", f"{error.median:.1%}, {error.p95:.1%}")
    return table
