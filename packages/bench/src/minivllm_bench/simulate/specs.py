"""What stands behind an option of the command: a short text for a length, an arrival process, a cost model.

Every function raises `InvalidSetting`, with the option, the text and what is allowed, for a text it cannot use.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from minivllm_bench.errors import InvalidSetting
from minivllm_bench.live.cost_file import read_cost_file
from minivllm_bench.model_configs import CONFIGS, model_shape
from minivllm_bench.simulate.devices import DEVICES
from minivllm_bench.simulate.options import SWEPT
from minivllm_scheduler import (
    COST_AWARE,
    FCFS,
    LEAST_COMPUTED,
    LIFO,
    RESERVE_ALL,
    AdmissionPolicy,
    FairShare,
    PriorityWithAgeing,
    SchedulerError,
    VictimPolicy,
    WaitingOrder,
)
from minivllm_scheduler.simulation import (
    ArrivalProcess,
    ClosedLoop,
    ConstantCost,
    CostModel,
    DeviceSheet,
    FixedLength,
    GammaArrivals,
    LengthDistribution,
    LinearCost,
    LogNormalLength,
    PoissonArrivals,
    RequestClass,
    RooflineCost,
    SharedPrefixes,
    SimulatedEngine,
    UniformLength,
)
from minivllm_scheduler.simulation.linear_cost import WEIGHTS

T = TypeVar("T")
VICTIMS: Final[Mapping[str, VictimPolicy]] = MappingProxyType(
    {"lifo": LIFO, "least-computed": LEAST_COMPUTED, "cost-aware": COST_AWARE}
)
ADMISSIONS: Final[Mapping[str, AdmissionPolicy | None]] = MappingProxyType(
    {"watermark": None, "reserve-all": RESERVE_ALL}
)


def parse_length(option: str, text: str) -> LengthDistribution:
    """`512`, `uniform:100:1024` or `lognormal:MEDIAN:SIGMA`."""
    kind, *numbers = text.split(":")
    if not numbers:
        return _built(option, text, lambda: FixedLength(int(kind)))
    if kind == "uniform" and len(numbers) == 2:
        return _built(option, text, lambda: UniformLength(int(numbers[0]), int(numbers[1])))
    if kind == "lognormal" and len(numbers) == 2:
        return _built(option, text, lambda: LogNormalLength(float(numbers[0]), float(numbers[1])))
    raise _refusal(option, text, "N, uniform:LOW:HIGH or lognormal:MEDIAN:SIGMA")


def parse_arrivals(option: str, text: str) -> ArrivalProcess | ClosedLoop:
    """`poisson:RATE`, `gamma:RATE:CV` or `closed:USERS[:THINK_TIME_S]`."""
    kind, *numbers = text.split(":")
    if kind == "poisson" and len(numbers) == 1:
        return _built(option, text, lambda: PoissonArrivals(float(numbers[0])))
    if kind == "gamma" and len(numbers) == 2:
        return _built(option, text, lambda: GammaArrivals(float(numbers[0]), float(numbers[1])))
    if kind == "closed" and len(numbers) in (1, 2):
        return _built(option, text, lambda: ClosedLoop(int(numbers[0]), *map(float, numbers[1:])))
    raise _refusal(option, text, "poisson:RATE, gamma:RATE:CV or closed:USERS[:THINK_TIME_S]")


def parse_shared_prefixes(option: str, text: str | None) -> SharedPrefixes | None:
    """`GROUPS:TOKENS`; None for none."""
    if text is None:
        return None
    groups, found, tokens = text.partition(":")
    if not found:
        raise _refusal(option, text, "GROUPS:TOKENS")
    return _built(option, text, lambda: SharedPrefixes(int(groups), int(tokens)))


class Cost(NamedTuple):
    """What a step costs, and of which engine that was measured; None for a model that was not."""

    model: CostModel
    engine: SimulatedEngine | None = None


def parse_cost(option: str, text: str) -> Cost:
    """`constant:SECONDS`, `linear:TERM=SECONDS,…`, `roofline:DEVICE:MODEL` or the `.json` file of a calibration."""
    kind, _, rest = text.partition(":")
    if kind == "constant":
        return Cost(_built(option, text, lambda: ConstantCost(float(rest))))
    if kind == "linear":
        return Cost(_parse_linear(option, text, rest))
    if kind == "roofline":
        return Cost(_parse_roofline(option, text, rest))
    if text.endswith(".json"):
        calibrated = read_cost_file(Path(text))
        return Cost(calibrated.cost, calibrated.engine)
    raise _refusal(
        option,
        text,
        "constant:SECONDS, linear:TERM=SECONDS,…, roofline:DEVICE:MODEL or a .json file of calibrate",
    )


def parse_order(option: str, text: str) -> WaitingOrder:
    """`fcfs`, `priority[:AGEING_S]` or `fair-share[:TENANT=WEIGHT:…]`; a new one at each call, for they keep state."""
    kind, *rest = text.split(":")
    if kind == "fcfs" and not rest:
        return FCFS
    if kind == "priority" and len(rest) <= 1:
        return _built(option, text, lambda: PriorityWithAgeing(*map(float, rest)))
    if kind == "fair-share" and all("=" in entry for entry in rest):
        weights = [entry.split("=", 1) for entry in rest]
        return _built(option, text, lambda: FairShare({tenant: float(weight) for tenant, weight in weights}))
    raise _refusal(option, text, "fcfs, priority[:AGEING_S] or fair-share[:TENANT=WEIGHT:…]")


def parse_victim(option: str, text: str) -> VictimPolicy:
    """One of `VICTIMS`."""
    return _named(option, text, VICTIMS)


def parse_admission(option: str, text: str) -> AdmissionPolicy | None:
    """One of `ADMISSIONS`; None is the watermark of the scheduler's limits."""
    return _named(option, text, ADMISSIONS)


def parse_classes(option: str, text: str | None) -> tuple[RequestClass, ...]:
    """`TENANT:PRIORITY:SHARE,…`; none for None."""
    if text is None:
        return ()
    entries = [entry.split(":") for entry in text.split(",")]
    if any(len(entry) != 3 for entry in entries):
        raise _refusal(option, text, "TENANT:PRIORITY:SHARE,…")
    return _built(
        option,
        text,
        lambda: tuple(
            RequestClass(tenant, int(priority), float(share)) for tenant, priority, share in entries
        ),
    )


def parse_sweep(option: str, text: str) -> tuple[str, tuple[int | float | str, ...]]:
    """`NAME=VALUE,VALUE,…`: one of `SWEPT` and its values; a whole number is at least 1."""
    name, found, values = text.partition("=")
    if not found or name not in SWEPT:
        raise _refusal(option, text, f"NAME=VALUE,VALUE,… with NAME of {', '.join(SWEPT)}")
    parsed = _built(option, text, lambda: tuple(SWEPT[name](value) for value in values.split(",")))
    if any(isinstance(value, int) and value < 1 for value in parsed):
        raise _refusal(option, text, "values of at least 1")
    if len(set(parsed)) < len(parsed):
        raise _refusal(option, text, "values that differ")
    return name, parsed


def _parse_linear(option: str, text: str, terms: str) -> LinearCost:
    weights: dict[str, str] = {}
    for term in terms.split(","):
        name, found, seconds = term.partition("=")
        if not found or name not in WEIGHTS or name in weights:
            raise _refusal(
                option, text, f"linear:TERM=SECONDS,… with each TERM once, of {', '.join(WEIGHTS)}"
            )
        weights[name] = seconds

    def build() -> LinearCost:
        numbers: dict[str, Any] = {name: float(value) for name, value in weights.items()}
        return LinearCost(**numbers)

    return _built(option, text, build)


def _parse_roofline(option: str, text: str, rest: str) -> RooflineCost:
    """DEVICE is one of `DEVICES` or FLOPS_PER_S/BYTES_PER_S, MODEL one of `CONFIGS` or a file like a `config.json`."""
    device, _, model = rest.partition(":")
    flops_per_s, is_pair, bytes_per_s = device.partition("/")
    if device in DEVICES:
        sheet = DEVICES[device]
    elif is_pair:
        sheet = _built(
            option, text, lambda: DeviceSheet(flops_per_s=float(flops_per_s), bytes_per_s=float(bytes_per_s))
        )
    else:
        raise _refusal(option, text, f"roofline with FLOPS_PER_S/BYTES_PER_S or one of {', '.join(DEVICES)}")
    if model not in CONFIGS and not model.endswith(".json"):
        raise _refusal(
            option, text, f"roofline with the path of a config.json or one of {', '.join(CONFIGS)}"
        )
    return _built(option, text, lambda: RooflineCost(sheet, model_shape(model)))


def _named(option: str, text: str, known: Mapping[str, T]) -> T:
    if text not in known:
        raise _refusal(option, text, f"one of {', '.join(known)}")
    return known[text]


def _built(option: str, text: str, build: Callable[[], T]) -> T:
    try:
        return build()
    except (SchedulerError, InvalidSetting) as error:
        raise InvalidSetting(f"{option} {text}: {error}") from error
    except ValueError as error:
        raise InvalidSetting(f"{option} is {text!r}: not a number where one belongs") from error


def _refusal(option: str, text: str, allowed: str) -> InvalidSetting:
    return InvalidSetting(f"{option} is {text!r}, it must be {allowed}")
