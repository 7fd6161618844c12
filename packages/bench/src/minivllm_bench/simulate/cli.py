"""The command `minivllm-bench simulate`."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from rich.console import Console

from minivllm_bench.errors import InvalidSetting
from minivllm_bench.simulate import options
from minivllm_bench.simulate.plot import to_svg
from minivllm_bench.simulate.results import SimulatedRun, to_json, to_table
from minivllm_bench.simulate.runner import run_all
from minivllm_bench.simulate.specs import (
    parse_arrivals,
    parse_cost,
    parse_length,
    parse_shared_prefixes,
    parse_sweep,
)
from minivllm_scheduler import (
    COST_AWARE,
    LEAST_COMPUTED,
    LIFO,
    RESERVE_ALL,
    SchedulerConfig,
    SchedulerError,
    VictimPolicy,
)
from minivllm_scheduler.simulation import MultiTurn, SimulatedEngine, SyntheticWorkload, Workload, read_trace

VICTIMS: Final[Mapping[options.Victim, VictimPolicy]] = MappingProxyType(
    {
        options.Victim.LIFO: LIFO,
        options.Victim.LEAST_COMPUTED: LEAST_COMPUTED,
        options.Victim.COST_AWARE: COST_AWARE,
    }
)


def simulate(
    *,
    trace: options.Trace = None,
    requests: options.Requests = 1000,
    arrivals: options.Arrivals = "poisson:1",
    prompt_len: options.PromptLen = "512",
    output_len: options.OutputLen = "128",
    shared_prefix: options.SharedPrefix = None,
    turns: options.Turns = "1",
    turn_gap_s: options.TurnGap = 0.0,
    seed: options.Seed = 0,
    cost: options.Cost = "roofline:h100:llama-3.1-8b",
    host_s: options.Host = 0.0,
    num_blocks: options.NumBlocks = 4096,
    block_size: options.BlockSize = 16,
    prefix_caching: options.PrefixCaching = True,
    run_ahead: options.RunAhead = True,
    max_num_seqs: options.MaxNumSeqs = 256,
    max_num_batched_tokens: options.MaxNumBatchedTokens = 2048,
    max_model_len: options.MaxModelLen = 8192,
    max_num_waiting: options.MaxNumWaiting = 1_000_000,
    victim: options.VictimChoice = options.Victim.LIFO,
    admission: options.AdmissionChoice = options.Admission.WATERMARK,
    sweep: options.Sweep = None,
    json_file: options.JsonFile = None,
    plot: options.PlotFile = None,
) -> None:
    """Simulate the engine's own scheduler on a virtual clock: no device, no weights."""
    settings = {name: value for name, value in locals().items() if value is not None}
    _check_targets(json_file, plot)
    with _refusals():
        workload: Workload = SyntheticWorkload(
            num_requests=requests,
            arrivals=parse_arrivals("--arrivals", arrivals),
            prompt_tokens=parse_length("--prompt-len", prompt_len),
            output_tokens=parse_length("--output-len", output_len),
            shared_prefixes=parse_shared_prefixes("--shared-prefix", shared_prefix),
            multi_turn=MultiTurn(parse_length("--turns", turns), turn_gap_s),
            seed=seed,
        )
        engine = SimulatedEngine(
            config=SchedulerConfig(
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=max_num_batched_tokens,
                max_model_len=max_model_len,
                max_num_waiting=max_num_waiting,
            ),
            num_blocks=num_blocks,
            block_size=block_size,
            prefix_caching=prefix_caching,
            victim=VICTIMS[victim],
            admission=RESERVE_ALL if admission is options.Admission.RESERVE_ALL else None,
            run_ahead=run_ahead,
            host_s=host_s,
        )
        cost_model = parse_cost("--cost", cost)
        engines = [({}, engine)] if sweep is None else _swept(engine, *parse_sweep("--sweep", sweep))
        runs = run_all(engines, cost_model, workload if trace is None else read_trace(trace))
    _write(runs, settings, json_file, plot)


def _check_targets(json_file: Path | None, plot: Path | None) -> None:
    """Finds out before the work that its results have a place to go to."""
    for option, path in (("--json", json_file), ("--plot", plot)):
        if path is not None and not path.parent.is_dir():
            raise InvalidSetting(f"no folder {path.parent} for {option}")
    if plot is not None and plot.suffix.lower() != ".svg":
        raise InvalidSetting(f"--plot is {plot.name}, it must end in .svg")


def _write(
    runs: Sequence[SimulatedRun], settings: Mapping[str, object], json_file: Path | None, plot: Path | None
) -> None:
    Console().print(to_table(runs))
    if json_file is not None:
        plain = {
            name: value if isinstance(value, int | float) else str(value) for name, value in settings.items()
        }
        json_file.write_text(to_json(runs, plain), encoding="utf-8")
    if plot is not None:
        plot.write_text(to_svg(runs), encoding="utf-8")


def _swept(
    engine: SimulatedEngine, name: str, values: tuple[int, ...]
) -> list[tuple[Mapping[str, int], SimulatedEngine]]:
    """The engine with each value of one setting of its own or of its scheduler."""
    found: list[tuple[Mapping[str, int], SimulatedEngine]] = []
    for value in values:
        change: dict[str, Any] = {name: value}
        if name in ("num_blocks", "block_size"):
            changed = dataclasses.replace(engine, **change)
        else:
            changed = dataclasses.replace(engine, config=dataclasses.replace(engine.config, **change))
        found.append(({name: value}, changed))
    return found


@contextmanager
def _refusals() -> Iterator[None]:
    """What the simulator refuses is a bad setting; its message names field, value and limit."""
    try:
        yield
    except SchedulerError as error:
        raise InvalidSetting(str(error)) from error
