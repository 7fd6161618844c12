"""From the options of the command to the simulations they ask for."""

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Final

from minivllm_bench.errors import InvalidSetting
from minivllm_bench.simulate.options import ENGINE, SimulateOptions
from minivllm_bench.simulate.results import Swept
from minivllm_bench.simulate.runner import PlannedRun
from minivllm_bench.simulate.specs import (
    parse_admission,
    parse_arrivals,
    parse_classes,
    parse_cost,
    parse_length,
    parse_order,
    parse_shared_prefixes,
    parse_sweep,
    parse_victim,
)
from minivllm_scheduler import SchedulerConfig
from minivllm_scheduler.simulation import MultiTurn, SimulatedEngine, SyntheticWorkload, Workload, read_trace

MAX_SWEEPS = 2
ENGINE_PARTS: Final = ("num_blocks", "block_size", "prefix_caching", "run_ahead")
"""Options that are fields of a `SimulatedEngine`."""
SCHEDULER_LIMITS: Final = tuple(field.name for field in dataclasses.fields(SchedulerConfig))
"""Options that are fields of its `SchedulerConfig`."""


def plan(options: SimulateOptions) -> tuple[PlannedRun, ...]:
    """The simulations of a command, the first sweep's values changing fastest.

    Raises:
        InvalidSetting: An option's text means nothing.
        SchedulerError: A number is outside its limits.
        OSError: A file cannot be read.
    """
    return tuple(_planned(swept, changed) for swept, changed in _points(options))


def _points(options: SimulateOptions) -> Sequence[tuple[Mapping[str, Swept], SimulateOptions]]:
    """What the sweeps change, and the options with that change; one point without changes if there is no sweep."""
    sweeps = [parse_sweep("--sweep", text) for text in options.sweep or ()]
    names = [name for name, _ in sweeps]
    if len(sweeps) > MAX_SWEEPS or len(set(names)) < len(names):
        raise InvalidSetting(f"--sweep names {', '.join(names)}, it must be at most {MAX_SWEEPS} settings")
    points: list[tuple[Mapping[str, Swept], SimulateOptions]] = []
    for values in product(*(values for _, values in reversed(sweeps))):
        swept = dict(zip(names, reversed(values), strict=True))
        changed = dataclasses.replace(options, **swept)  # type: ignore[arg-type]
        points.append((swept, changed))
    return points


def _planned(swept: Mapping[str, Swept], options: SimulateOptions) -> PlannedRun:
    cost, calibrated = parse_cost("--cost", options.cost)
    return PlannedRun(
        swept=swept, engine=_engine(options, calibrated or ENGINE), cost=cost, workload=_workload(options)
    )


def _workload(options: SimulateOptions) -> Workload:
    if options.trace is not None:
        return read_trace(options.trace)
    return SyntheticWorkload(
        num_requests=options.requests,
        arrivals=parse_arrivals("--arrivals", options.arrivals),
        prompt_tokens=parse_length("--prompt-len", options.prompt_len),
        output_tokens=parse_length("--output-len", options.output_len),
        max_tokens=options.max_tokens,
        shared_prefixes=parse_shared_prefixes("--shared-prefix", options.shared_prefix),
        multi_turn=MultiTurn(parse_length("--turns", options.turns), options.turn_gap_s),
        classes=parse_classes("--classes", options.classes),
        seed=options.seed,
    )


def _engine(options: SimulateOptions, defaults: SimulatedEngine) -> SimulatedEngine:
    """`defaults` with everything changed that the options name."""
    return dataclasses.replace(
        defaults,
        config=dataclasses.replace(defaults.config, **_given(options, SCHEDULER_LIMITS)),
        order=parse_order("--order", options.order),
        victim=parse_victim("--victim", options.victim),
        admission=parse_admission("--admission", options.admission),
        host_s=options.host_s,
        **_given(options, ENGINE_PARTS),
    )


def _given(options: SimulateOptions, names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(options, name)) is not None}
