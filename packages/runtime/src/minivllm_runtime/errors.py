"""Everything the runtime raises on purpose.

MinivllmError
├── InvalidParameter (ValueError)   a value of a request or a setting is out of its range; names the parameter
├── QueueFull                       the request was refused because too many are waiting
├── ModelLoadError                  the model is missing, damaged or of an unsupported kind
├── RequestFailed                   this one request ended because of a fault inside the engine
└── EngineDead                      the engine stopped; no request will ever be served again
"""


class MinivllmError(Exception):
    """Base of all errors that the runtime raises on purpose."""


class InvalidParameter(MinivllmError, ValueError):
    """A parameter is out of its range. `param` is its name; the message names the value and the limit."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


class ContextLengthExceeded(InvalidParameter):
    """A prompt, or a prompt and what is to follow it, has more tokens than a request can have."""


class QueueFull(MinivllmError):
    """The waiting queue has no room for the request; a later try may succeed."""


class ModelLoadError(MinivllmError):
    """The model cannot be served; the message is one line that says why."""


class RequestFailed(MinivllmError):
    """One request ended with a fault inside the engine; others are not affected."""


class EngineDead(MinivllmError):
    """The engine stopped working; every pending and later request gets this error."""
