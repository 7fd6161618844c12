"""Everything the benchmarks raise on purpose; each message is one line.

BenchError
├── InvalidSetting (ValueError)  a workload, engine or value that does not exist or is out of its range
├── MissingExtra                 an engine's packages are not installed
├── EngineFailed                 an engine could not load the model or broke while it ran
├── InvalidRun                   an engine returned something other than what was asked for
└── SoakFailed                   something that must hold did not, in a soak
"""


class BenchError(Exception):
    """Base of all errors that the benchmarks raise on purpose."""


class InvalidSetting(BenchError, ValueError):
    """A setting is unknown or out of its range; the message names the value and what is allowed."""


class MissingExtra(BenchError):
    """The packages of an engine are not installed; the message names the extra that brings them."""


class EngineFailed(BenchError):
    """An engine could not load the model or stopped working."""


class InvalidRun(BenchError):
    """An engine's answer is not what was asked for, so its time is not a figure."""


class SoakFailed(BenchError):
    """Something that must hold after a soak does not; the message says what."""
