"""Logs for people and programs: one line per record, as key=value pairs or as JSON."""

import json
import logging
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

FIELDS = "fields"
"""Attribute of a log record: what it says beside its message, by name. Given as `extra={FIELDS: {…}}`."""

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""Of the exchange that is being handled; every record that is made meanwhile carries it."""

STDERR = 2
_OURS = ("minivllm_server", "minivllm_runtime")
_PLAIN = re.compile(r"[^ =\"\\]+")


class TextFormatter(logging.Formatter):
    """`time level logger message key=value …`, what has spaces in quotes, and a traceback at the end of the line.

    Control characters are escaped: a line can neither look like two nor move the cursor of a terminal.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record as one line."""
        fields = " ".join(f"{name}={_quote(value)}" for name, value in _fields_of(record).items())
        line = f"{_time_of(record)} {record.levelname} {record.name} {_one_line(record.getMessage())}"
        return f"{line} {fields}" if fields else line


class JsonFormatter(logging.Formatter):
    """An object with time, level, logger, message and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record as one line."""
        entry = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields_of(record),
        }
        return json.dumps(entry, default=str)


class LineHandler(logging.Handler):
    """Writes lines to a file descriptor, without a buffer.

    A line that cannot be written, on a full disk for instance, is lost, and nothing else happens. Neither does a
    record that cannot be formatted harm whoever made it: it is reported in the way of the standard library.
    """

    def __init__(self, descriptor: int = STDERR) -> None:
        super().__init__()
        self._descriptor = descriptor

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one record."""
        try:
            line = self.format(record) + "\n"
        except Exception:  # arguments that do not fit the message, for instance
            self.handleError(record)
            return
        with suppress(OSError):
            os.write(self._descriptor, line.encode(errors="backslashreplace"))


def configure_logging(log_format: LogFormat, level: LogLevel) -> None:
    """Sends all logs of the process to stderr: this project's from `level` on, warnings of others."""
    handler = LineHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    for name in _OURS:
        logging.getLogger(name).setLevel(level.upper())


def _fields_of(record: logging.LogRecord) -> Mapping[str, Any]:
    request_id = REQUEST_ID.get()
    fields = {} if request_id is None else {"request_id": request_id}
    fields |= getattr(record, FIELDS, {})
    if record.exc_text:  # of another process, or formatted before
        fields["traceback"] = record.exc_text
    elif record.exc_info:
        fields["traceback"] = logging.Formatter().formatException(record.exc_info)
    return fields


def _time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _quote(value: Any) -> str:
    text = str(value)
    is_plain = text.isprintable() and _PLAIN.fullmatch(text)
    return text if is_plain else _one_line(json.dumps(text, ensure_ascii=False))


def _one_line(text: str) -> str:
    """The text with escapes for all that would end the line or be an order to a terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
