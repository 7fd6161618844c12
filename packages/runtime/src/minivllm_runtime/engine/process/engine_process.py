"""Starts an engine process and ends it."""

import logging
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from minivllm_runtime.config import EngineConfig
from minivllm_runtime.engine.process.log_relay import log_again
from minivllm_runtime.engine.process.startup import (
    Loading,
    Logged,
    ModelRefused,
    Opened,
    Ready,
    SettingRefused,
    decode_announcement,
)
from minivllm_runtime.errors import EngineDead, InvalidParameter, ModelLoadError
from minivllm_runtime.model_config import ModelConfig

_log = logging.getLogger(__name__)

_STOP_TIMEOUT_S = 5


class EngineProcess:
    """A running engine process, a child of ours. It ends when we do; if it ends otherwise, the log says so.

    What it logs is logged here.

    Attributes:
        address: Where clients connect to.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", address: str) -> None:
        self._process = process
        self.address = address
        self._watcher = threading.Thread(target=self._watch, name="minivllm-engine-watch", daemon=True)
        self._watcher.start()

    @classmethod
    def spawn(
        cls,
        config: EngineConfig,
        *,
        progress: Callable[[str, int, int], None] | None = None,
        on_model: Callable[[ModelConfig], object] | None = None,
    ) -> "EngineProcess":
        """Start a process and wait until its engine is ready; `progress` and `on_model` as in `build_engine`.

        Raises:
            ModelLoadError, InvalidParameter: as `build_engine` does.
            EngineDead: the process ended otherwise.
        """
        process = subprocess.Popen(
            [sys.executable, "-m", "minivllm_runtime.engine.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # signals of the terminal are for us; it ends when its input does
        )
        try:
            return cls(process, _await_ready(process, config, progress, on_model))
        except BaseException:
            process.kill()
            _reap(process)
            raise

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def _watch(self) -> None:
        assert self._process.stdout is not None, "it is a pipe"
        for line in self._process.stdout:
            with suppress(msgspec.DecodeError):  # the process was killed while it wrote the line
                match decode_announcement(line):
                    case Logged() as logged:
                        log_again(logged)
        exit_code = self._process.wait()
        if exit_code != 0:  # not because we closed its input
            _log.error("the engine process ended with exit code %d: nothing is generated any more", exit_code)

    def close(self) -> None:
        """End the process, whatever it does at the moment. May be called again."""
        assert self._process.stdin is not None, "it is a pipe"
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._watcher.join()
        _reap(self._process)
        # The process removes the folder of its socket, unless it was killed.
        shutil.rmtree(Path(self.address.removeprefix("ipc://")).parent, ignore_errors=True)


def _await_ready(
    process: "subprocess.Popen[bytes]",
    config: EngineConfig,
    progress: Callable[[str, int, int], None] | None,
    on_model: Callable[[ModelConfig], object] | None,
) -> str:
    """Send the configuration, follow the announcements; returns the address."""
    assert process.stdin is not None, "it is a pipe"
    assert process.stdout is not None, "it is a pipe"
    with suppress(BrokenPipeError):  # then its output ends, too
        process.stdin.write(msgspec.json.encode(config) + b"\n")
        process.stdin.flush()
    for line in process.stdout:
        match decode_announcement(line):
            case Loading(stage, done, total):
                if progress is not None:
                    progress(stage, done, total)
            case Opened(model_config):
                if on_model is not None:
                    on_model(model_config)
            case SettingRefused(param, message):
                raise InvalidParameter(param, message)
            case ModelRefused(message):
                raise ModelLoadError(message)
            case Logged() as logged:
                log_again(logged)
            case Ready(address):
                return address
    raise EngineDead(f"the engine process ended while it was loading, with exit code {process.wait()}")


def _reap(process: "subprocess.Popen[bytes]") -> None:
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()
