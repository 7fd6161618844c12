import asyncio
import os
import shlex
import sys
import tempfile
from pathlib import Path

import pytest

from minivllm_bench.errors import EngineFailed, InvalidSetting
from minivllm_bench.serve.exchange import fetch
from minivllm_bench.serve.server_process import ServerProcess

from ..processes import children

SCRIPTED = f"{sys.executable} {Path(__file__).with_name('scripted_server.py')} {{port}}"


@pytest.fixture(autouse=True)
def _logs_in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def start(command, timeout_s=30.0):
    return ServerProcess(command, api_key=None, start_timeout_s=timeout_s)


def test_a_server_runs_until_it_is_closed_and_leaves_nothing():
    with start(SCRIPTED) as server:
        answer = asyncio.run(
            fetch(server.endpoint, server.endpoint.request("GET", "/v1/models"), timeout_s=10)
        )
        assert answer.status == 200
        assert server.log.exists()
        os.kill(server.pid, 0)
    assert not server.log.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)
    assert server.stop() != 0


def test_a_server_that_ends_is_said_with_its_last_words():
    command = shlex.join([sys.executable, "-c", "import sys; sys.exit('no room on {port}')"])
    with pytest.raises(EngineFailed, match="status 1: no room on"):
        start(command)


def test_a_server_that_never_gets_healthy_is_stopped():
    before = children()
    with pytest.raises(EngineFailed, match=r"not healthy after 0\.2 s"):
        start("sleep {port}", timeout_s=0.2)  # for hours
    assert children() == before


def test_a_program_that_does_not_exist_is_named():
    with pytest.raises(EngineFailed, match="cannot run no-such-program"):
        start("no-such-program {port}")


@pytest.mark.parametrize("command", ["serve", "serve '{port}"])
def test_a_command_without_a_place_for_the_port_or_badly_quoted_is_refused(command):
    with pytest.raises(InvalidSetting, match="serve"):
        start(command)
