"""Log records of an engine process are written by its parent, which knows where to and in which form."""

import logging
from collections.abc import Callable

from minivllm_runtime.engine.process.startup import Logged

_OURS = "minivllm_runtime"


class RelayHandler(logging.Handler):
    """Gives every record to `send`."""

    def __init__(self, send: Callable[[Logged], object]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        """Sends one record; what cannot be sent is reported in the way of the standard library."""
        try:
            traceback = logging.Formatter().formatException(record.exc_info) if record.exc_info else None
            self._send(Logged(record.name, record.levelno, record.created, record.getMessage(), traceback))
        except BrokenPipeError:  # the parent is gone, and so is this process in a moment
            return
        except Exception:
            self.handleError(record)


def relay_logs(send: Callable[[Logged], object]) -> None:
    """Gives `send` the records of this process: all of our own, of which the parent chooses, and warnings of others."""
    root = logging.getLogger()
    root.handlers = [RelayHandler(send)]
    root.setLevel(logging.WARNING)
    logging.getLogger(_OURS).setLevel(logging.DEBUG)


def log_again(logged: Logged) -> None:
    """Logs what another process has logged, if its logger here takes that level."""
    logger = logging.getLogger(logged.logger)
    if not logger.isEnabledFor(logged.level):
        return
    record = logger.makeRecord(logged.logger, logged.level, "", 0, logged.message, (), None)
    record.created, record.msecs = logged.created_s, logged.created_s % 1 * 1000
    record.exc_text = logged.traceback
    logger.handle(record)
