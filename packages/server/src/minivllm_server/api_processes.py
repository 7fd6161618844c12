"""Several HTTP processes in front of one engine: the parent starts them, replaces those that fail and ends them.

They accept from one listening socket: whoever is free takes the next connection. Each ends when the parent does.
"""

import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from types import FrameType

import msgspec

_log = logging.getLogger(__name__)
_PROGRAM = "minivllm_server.api_process"


class ApiProcessFailed(RuntimeError):
    """An HTTP process ended before it could serve; the message is one line."""


class Shared(msgspec.Struct, frozen=True):
    """What the HTTP processes have in common besides the engine.

    Attributes:
        metrics_folder: Where they add their measurements up.
        ledger_address: Of the `LedgerServer` that counts what API keys use.
    """

    metrics_folder: str
    ledger_address: str


class Assignment(msgspec.Struct, frozen=True):
    """What an HTTP process is told on its standard input.

    Attributes:
        settings: Of the server, by name.
        engine_address: Of the engine process.
        listener: File descriptor of the listening socket, inherited.
        shared: With the other processes.
    """

    settings: dict[str, object]
    engine_address: str
    listener: int
    shared: Shared


class ApiProcesses:
    """A fixed number of HTTP processes.

    Args:
        assignment: The same for all.
        count: How many.
    """

    def __init__(self, assignment: Assignment, count: int) -> None:
        self._assignment = assignment
        self._processes = [self._start() for _ in range(count)]
        self._stopping = threading.Event()

    def serve(self, on_ready: Callable[[], None]) -> None:
        """Wait until all of them serve, call `on_ready`, and return when they ended after a signal to this process.

        Raises:
            ApiProcessFailed: one of them could not start.
        """
        handlers = [signal.signal(number, self._forward) for number in (signal.SIGTERM, signal.SIGINT)]
        try:
            for process in self._processes:
                _await_ready(process)
            on_ready()
            watchers = [
                threading.Thread(target=self._watch, args=(index,)) for index in range(len(self._processes))
            ]
            for watcher in watchers:
                watcher.start()
            for watcher in watchers:
                watcher.join()
        finally:
            for number, handler in zip((signal.SIGTERM, signal.SIGINT), handlers, strict=True):
                signal.signal(number, handler)
            for process in self._processes:
                _end(process)

    def _start(self) -> "subprocess.Popen[bytes]":
        # prometheus_client looks at this variable when it is imported, to learn that several processes add up.
        variable = f"PROMETHEUS_MULTIPROC_DIR={self._assignment.shared.metrics_folder}"
        process = subprocess.Popen(  # noqa: S603 - ourselves
            ["/usr/bin/env", variable, sys.executable, "-m", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(self._assignment.listener,),
            start_new_session=True,  # signals of the terminal are for the parent, which passes them on
        )
        assert process.stdin is not None, "it is a pipe"
        process.stdin.write(msgspec.json.encode(self._assignment) + b"\n")
        process.stdin.flush()
        return process

    def _forward(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of handlers
        self._stopping.set()
        for process in self._processes:
            process.send_signal(number)

    def _watch(self, index: int) -> None:
        """Replace a process that ends without having been asked to."""
        while True:
            exit_code = self._processes[index].wait()
            if self._stopping.is_set():
                return
            _log.error(
                "an HTTP process ended with exit code %d; its requests are lost, another takes over",
                exit_code,
            )
            _end(self._processes[index])
            self._processes[index] = self._start()
            if self._stopping.is_set():  # just now: the signal may have missed it
                self._processes[index].send_signal(signal.SIGTERM)
            try:
                _await_ready(self._processes[index])
            except ApiProcessFailed:
                _log.exception("it cannot be replaced")
                return


def _await_ready(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdout is not None, "it is a pipe"
    if not process.stdout.readline():
        raise ApiProcessFailed(f"an HTTP process ended with exit code {process.wait()} before it could serve")


def _end(process: "subprocess.Popen[bytes]") -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.wait()
