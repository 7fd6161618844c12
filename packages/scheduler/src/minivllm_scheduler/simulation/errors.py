"""What a caller of the simulator can do wrong.

SchedulerError
└── SimulationError
    ├── InvalidWorkload    a rate, length or count outside its limits
    ├── InvalidTrace       a line of a trace that cannot be used
    └── InvalidCost        a cost model that cannot be built, or that answers nonsense
"""

from minivllm_scheduler.errors import SchedulerError


class SimulationError(SchedulerError):
    """Base of every error raised by the simulator."""


class InvalidWorkload(SimulationError, ValueError):
    """A number that describes a workload is outside its limits; the message names both."""


class InvalidTrace(SimulationError, ValueError):
    """A trace cannot be used.

    Attributes:
        where: The place, such as "line 7".
        field: The column, or None where the whole line is wrong.
        value: What stands there.
    """

    def __init__(self, where: str, field: str | None, value: object, expected: str) -> None:
        self.where = where
        self.field = field
        self.value = value
        subject = "it" if field is None else field
        super().__init__(f"{where}: {subject} is {value!r}, it must be {expected}")


class InvalidCost(SimulationError, ValueError):
    """A cost model's numbers are outside their limits; the message names them."""


def require_at_least(name: str, value: float, least: float, error: type[SimulationError]) -> None:
    """Raises `error` unless `value` is finite and at least `least`."""
    if not least <= value < float("inf"):
        raise error(f"{name} is {value}, it must be finite and at least {least}")


def require_positive(name: str, value: float, error: type[SimulationError]) -> None:
    """Raises `error` unless `value` is finite and above 0."""
    if not 0 < value < float("inf"):
        raise error(f"{name} is {value}, it must be finite and above 0")
