"""The file that `calibrate` writes and `simulate --cost` reads."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from minivllm_bench.engines.interface import EngineSettings
from minivllm_bench.errors import InvalidSetting
from minivllm_bench.live.calibrate import Calibration
from minivllm_bench.machine import MachineFacts
from minivllm_bench.reservations import checkout_reservations
from minivllm_scheduler import InvalidConfig, SchedulerConfig, SchedulerError
from minivllm_scheduler.simulation import LinearCost, SimulatedEngine, TokenCurve

SCHEMA: Final = 2
"""Raised when a field of the JSON changes its meaning or goes away."""


@dataclass(frozen=True, slots=True)
class CalibratedCost:
    """What stands in a cost file.

    Attributes:
        settings: What the engine whose steps were measured is built from.
        engine: The same engine for the simulator: its limits, its pool, its step loop.
        cost: What its steps cost.
    """

    settings: EngineSettings
    engine: SimulatedEngine
    cost: LinearCost


def to_json(
    calibration: Calibration, settings: EngineSettings, engine: SimulatedEngine, machine: MachineFacts
) -> str:
    """An indented JSON object: schema, machine, settings, engine, reservations, cost, fit, held_out."""
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "machine": dataclasses.asdict(machine),
        "settings": {
            "model": settings.model,
            "dtype": settings.dtype,
            "device": settings.device,
            "num_threads": settings.num_threads,
        },
        "engine": {
            "config": dataclasses.asdict(engine.config),
            "num_blocks": engine.num_blocks,
            "block_size": engine.block_size,
            "prefix_caching": engine.prefix_caching,
            "run_ahead": engine.run_ahead,
        },
        "reservations": checkout_reservations(machine),
        "cost": dataclasses.asdict(calibration.cost),
        "fit": {"steps": calibration.num_steps, **calibration.fit_error._asdict()},
        "held_out": {"steps": calibration.num_held_out, **calibration.held_out_error._asdict()},
    }
    return json.dumps(report, indent=2) + "\n"


def read_cost_file(path: Path) -> CalibratedCost:
    """Reads what `calibrate` wrote.

    Raises:
        InvalidSetting: The file is of another kind or damaged; the message names it and what is wrong.
        OSError: It cannot be read.
    """
    content = path.read_bytes()
    try:
        report = json.loads(content)
        schema = report["schema"]
    except (ValueError, KeyError, TypeError) as error:
        raise _refusal(path, error) from error
    if schema != SCHEMA:
        raise InvalidSetting(f"{path} has schema {schema!r}, it must be {SCHEMA}: calibrate again")
    try:
        return CalibratedCost(
            EngineSettings(**report["settings"]), _read_engine(report["engine"]), _read_cost(report["cost"])
        )
    except SchedulerError as error:
        raise InvalidSetting(f"{path}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _refusal(path, error) from error


def _read_engine(fields: dict[str, Any]) -> SimulatedEngine:
    for name in ("num_blocks", "block_size"):
        if fields[name] < 1:
            raise InvalidConfig(f"{name} is {fields[name]}, it must be at least 1")
    return SimulatedEngine(config=SchedulerConfig(**fields.pop("config")), **fields)


def _read_cost(fields: dict[str, Any]) -> LinearCost:
    curve = fields.pop("token_curve")
    token_curve = TokenCurve(tuple(curve["knots"]), tuple(curve["seconds"])) if curve else None
    return LinearCost(**fields, token_curve=token_curve)


def _refusal(path: Path, error: Exception) -> InvalidSetting:
    return InvalidSetting(f"{path} is not a file that calibrate wrote: {error!r}")
