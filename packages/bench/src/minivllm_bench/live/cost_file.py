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
from minivllm_scheduler.simulation import InvalidCost, LinearCost, TokenCurve

SCHEMA: Final = 1
"""Raised when a field of the JSON changes its meaning or goes away."""


@dataclass(frozen=True, slots=True)
class CalibratedCost:
    """What stands in a cost file.

    Attributes:
        settings: Of the engine whose steps were measured.
        cost: What they cost.
    """

    settings: EngineSettings
    cost: LinearCost


def to_json(calibration: Calibration, settings: EngineSettings, machine: MachineFacts) -> str:
    """An indented JSON object: schema, machine, settings, reservations, cost, fit, held_out."""
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "machine": dataclasses.asdict(machine),
        "settings": {
            "model": settings.model,
            "dtype": settings.dtype,
            "device": settings.device,
            "num_threads": settings.num_threads,
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
        raise InvalidSetting(f"{path} has schema {schema!r}, it must be {SCHEMA}")
    try:
        curve = report["cost"].pop("token_curve")
        token_curve = TokenCurve(tuple(curve["knots"]), tuple(curve["seconds"])) if curve else None
        return CalibratedCost(
            EngineSettings(**report["settings"]), LinearCost(**report["cost"], token_curve=token_curve)
        )
    except InvalidCost as error:
        raise InvalidSetting(f"{path}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _refusal(path, error) from error


def _refusal(path: Path, error: Exception) -> InvalidSetting:
    return InvalidSetting(f"{path} is not a file that calibrate wrote: {error!r}")
