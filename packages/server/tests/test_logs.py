import json
import logging
import os
import sys
from pathlib import Path

import pytest

from minivllm_server.logs import FIELDS, REQUEST_ID, JsonFormatter, LineHandler, TextFormatter


def record(message="hello", fields=None, exc_info=None):
    made = logging.LogRecord("minivllm_server.x", logging.WARNING, "x.py", 1, message, None, exc_info)
    if fields is not None:
        setattr(made, FIELDS, fields)
    return made


@pytest.fixture
def failure():
    try:
        raise ValueError("no\nluck")
    except ValueError:
        return sys.exc_info()


def test_text_is_one_line_of_pairs(failure):
    line = TextFormatter().format(record("a\nb", {"path": "/v1", "said": 'say "hi"', "n": 3}, failure))
    assert "\n" not in line
    assert 'WARNING minivllm_server.x a\\nb path=/v1 said="say \\"hi\\"" n=3 traceback="Traceback' in line


@pytest.mark.parametrize(
    "control",
    [
        "\0",
        "\a",
        "\b",
        "\t",
        "\v",
        "\x1b",
        "\x1c",
        "\x7f",
        "\x85",
        "\x9b",
        "\u2028",
        "\u2029",
        "\u202e",
        "\U000e0001",
    ],
    ids=ascii,
)
def test_nothing_in_a_line_of_text_moves_a_terminal(control):
    line = TextFormatter().format(record(f"a{control}b", {"path": f"/{control}[2J"}))
    assert line.isprintable()
    message, path = line.split(" minivllm_server.x ", 1)[1].split(" path=")
    assert json.loads(f'"{message}"') == f"a{control}b"
    assert json.loads(path) == f"/{control}[2J"


def test_letters_of_all_scripts_stay_as_they_are():
    line = TextFormatter().format(
        record("caf\u00e9 \u65e5\u672c", {"path": "/\u65e5\u672c", "said": "\u65e5 \U0001f600"})
    )
    assert line.endswith('caf\u00e9 \u65e5\u672c path=/\u65e5\u672c said="\u65e5 \U0001f600"')


def test_json_is_one_object(failure):
    entry = json.loads(JsonFormatter().format(record("a\nb", {"n": 3, "path": None}, failure)))
    assert entry.pop("time").endswith("+00:00")
    assert "ValueError: no\nluck" in entry.pop("traceback")
    assert entry == {
        "level": "warning",
        "logger": "minivllm_server.x",
        "message": "a\nb",
        "n": 3,
        "path": None,
    }


def test_a_traceback_of_another_process_is_like_one_of_ours():
    relayed = record()
    relayed.exc_text = "Traceback of\nanother"
    assert TextFormatter().format(relayed).endswith('traceback="Traceback of\\nanother"')
    assert json.loads(JsonFormatter().format(relayed))["traceback"] == "Traceback of\nanother"


def test_every_record_of_an_exchange_has_its_id():
    token = REQUEST_ID.set("r1")
    try:
        assert "request_id=r1" in TextFormatter().format(record())
    finally:
        REQUEST_ID.reset(token)
    assert "request_id" not in TextFormatter().format(record())


def test_a_line_is_written_at_once():
    reader, writer = os.pipe()
    handler = LineHandler(writer)
    handler.handle(record("caf\u00e9 \ud800"))
    assert os.read(reader, 100) == b"caf\xc3\xa9 \\ud800\n"
    for descriptor in (reader, writer):
        os.close(descriptor)


def test_a_record_that_cannot_be_formatted_is_reported_and_nobody_fails(capsys):
    reader, writer = os.pipe()
    handler = LineHandler(writer)
    handler.handle(logging.LogRecord("other", logging.WARNING, "x.py", 1, "%d", ("x",), None))
    handler.handle(record("after it"))
    assert os.read(reader, 100) == b"after it\n"
    assert "TypeError: %d format" in capsys.readouterr().err
    for descriptor in (reader, writer):
        os.close(descriptor)


def test_a_full_disk_loses_lines_and_nothing_else(capfd):
    with Path("/dev/full").open("wb") as full:
        LineHandler(full.fileno()).handle(record())
    assert capfd.readouterr() == ("", "")
