"""Records cross from one process to another: here from a handler to the loggers of the same process."""

import logging
import os
import sys

import msgspec
import pytest

from minivllm_runtime.engine.process.log_relay import RelayHandler, log_again, relay_logs
from minivllm_runtime.engine.process.startup import decode_announcement


def record(message="hello", *args, level=logging.WARNING, exc_info=None):
    return logging.LogRecord("minivllm_runtime.x", level, "x.py", 1, message, args, exc_info)


def crossed(original):
    """What a parent decodes of a record."""
    lines = []
    RelayHandler(lambda logged: lines.append(msgspec.json.encode(logged))).handle(original)
    (line,) = lines
    return decode_announcement(line)


def failure():
    try:
        raise ValueError("no\nluck")
    except ValueError:
        return sys.exc_info()


def test_a_record_is_the_same_on_the_other_side(caplog):
    original = record("%s: 100%% of %d\n", "a", 5, exc_info=failure())
    log_again(crossed(original))
    (again,) = caplog.records
    assert again.getMessage() == original.getMessage() == "a: 100% of 5\n"
    for name in ("name", "levelno", "levelname", "created"):
        assert getattr(again, name) == getattr(original, name)
    assert again.msecs == pytest.approx(original.msecs, abs=1)
    assert "ValueError: no\nluck" in logging.Formatter().format(again)


@pytest.mark.parametrize(("level", "is_logged"), [(logging.INFO, False), (logging.WARNING, True)])
def test_the_loggers_here_choose_by_level(caplog, level, is_logged):
    caplog.set_level(logging.WARNING, "minivllm_runtime")
    log_again(crossed(record(level=level)))
    assert bool(caplog.records) == is_logged


def test_a_record_that_cannot_be_formatted_is_reported_and_nobody_fails(capsys):
    RelayHandler(pytest.fail).handle(record("%d", "x"))
    assert "TypeError: %d format" in capsys.readouterr().err


def test_nobody_complains_of_a_parent_that_is_gone(capfd):
    reader, writer = os.pipe()
    os.close(reader)
    RelayHandler(lambda logged: os.write(writer, logged.message.encode())).handle(record())
    os.close(writer)
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def root():
    root, ours = logging.getLogger(), logging.getLogger("minivllm_runtime")
    before = root.handlers, root.level, ours.level
    yield root
    root.handlers = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


def test_all_records_of_ours_and_warnings_of_others_are_sent(root):
    sent = []
    relay_logs(lambda logged: sent.append((logged.logger, logged.level)))
    for name in ("minivllm_runtime.x", "other"):
        for level in (logging.DEBUG, logging.WARNING):
            logging.getLogger(name).log(level, "hello")
    assert sent == [
        ("minivllm_runtime.x", logging.DEBUG),
        ("minivllm_runtime.x", logging.WARNING),
        ("other", logging.WARNING),
    ]
