"""Several HTTP processes in front of one engine: the parent starts them, replaces those that fail and ends them.

They accept from one listening socket: whoever is free takes the next connection. Each ends when the parent does.
"""

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from minivllm_server.back_off import BackOff

_log = logging.getLogger(__name__)

READY = b"ready\n"
"""What an HTTP process writes to its standard output when it serves."""

_BACK_OFF = BackOff()
_PROGRAM = (sys.executable, "-m", "minivllm_server.api_process")
_GRACEFUL = (0, -signal.SIGTERM)
"""How a process that was told to end does so; the latter while it starts, when there is nothing to finish."""


class ApiProcessFailed(RuntimeError):
    """HTTP processes do not serve, or ended badly; the message is one line."""


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
    """A fixed number of HTTP processes, from `serve` on.

    Args:
        assignment: The same for all.
        count: How many.
        stop_timeout_s: Within so long after a signal they must have ended; those that have not are killed.
        back_off: When those that fail are replaced.
        program: What they run. It reads the assignment from the first line of its input, and writes `READY`.
    """

    def __init__(
        self,
        assignment: Assignment,
        count: int,
        *,
        stop_timeout_s: float,
        back_off: BackOff = _BACK_OFF,
        program: Sequence[str] = _PROGRAM,
    ) -> None:
        self._assignment = assignment
        self._count = count
        self._stop_timeout_s = stop_timeout_s
        self._back_off = back_off
        self._program = program
        self._stopping = asyncio.Event()
        self._running: set[Process] = set()
        self._failure: str | None = None

    def serve(self, on_ready: Callable[[], None]) -> None:
        """Start them, call `on_ready` once all of them serve, and return when they ended after SIGTERM or SIGINT.

        A signal before that ends them, too; `on_ready` is not called then. Each signal is passed on.

        Raises:
            ApiProcessFailed: One could not start, failed again and again, or ended badly when it was told to end.
                None is left.
        """
        asyncio.run(self._serve(on_ready))
        if self._failure is not None:
            raise ApiProcessFailed(self._failure)

    async def _serve(self, on_ready: Callable[[], None]) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop)
        processes = [await self._start() for _ in range(self._count)]
        for process in processes:
            if not await _begins_to_serve(process) and not self._stopping.is_set():
                self._fail(
                    f"an HTTP process ended with exit code {await process.wait()} before it could serve"
                )
        if not self._stopping.is_set():
            on_ready()
        await asyncio.gather(*map(self._keep, processes))

    async def _keep(self, process: Process) -> None:
        """Replace a process that ends without having been told to."""
        loop = asyncio.get_running_loop()
        num_failures = 0
        while True:
            began_at = loop.time()
            exit_code = await process.wait()
            self._running.discard(process)
            if self._stopping.is_set():
                self._check(exit_code)
                return
            num_failures = num_failures + 1 if self._back_off.is_quick(loop.time() - began_at) else 0
            delay_s = self._back_off.delay_s(num_failures)
            if delay_s is None:
                self._fail(
                    f"an HTTP process failed {num_failures} times in a row, at last with exit code {exit_code}"
                )
                return
            _log.error(
                "an HTTP process ended with exit code %d; its requests are lost, another takes over",
                exit_code,
            )
            await self._pause(delay_s)
            if self._stopping.is_set():
                return
            process = await self._start()
            await _begins_to_serve(process)

    async def _pause(self, seconds: float) -> None:
        """Wait, but not longer than until it is time to stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _start(self) -> Process:
        # prometheus_client looks at this variable when it is imported, to learn that several processes add up.
        variable = f"PROMETHEUS_MULTIPROC_DIR={self._assignment.shared.metrics_folder}"
        process = await asyncio.create_subprocess_exec(
            *("/usr/bin/env", variable, *self._program),
            stdin=PIPE,
            stdout=PIPE,
            pass_fds=(self._assignment.listener,),
            start_new_session=True,  # signals of the terminal are for the parent, which passes them on
        )
        self._running.add(process)
        assert process.stdin is not None, "it is a pipe"
        process.stdin.write(msgspec.json.encode(self._assignment) + b"\n")
        if self._stopping.is_set():  # while it was made
            _send(signal.SIGTERM, process)
        return process

    def _stop(self) -> None:
        if not self._stopping.is_set():
            asyncio.get_running_loop().call_later(self._stop_timeout_s, self._kill)
        self._stopping.set()
        for process in self._running:
            _send(signal.SIGTERM, process)

    def _kill(self) -> None:
        """End those that hang."""
        for process in self._running:
            _log.error("an HTTP process does not end, it is killed")
            _send(signal.SIGKILL, process)

    def _fail(self, message: str) -> None:
        self._failure = message
        self._stop()

    def _check(self, exit_code: int) -> None:
        if exit_code not in _GRACEFUL and self._failure is None:
            self._failure = f"an HTTP process ended with exit code {exit_code} when it was told to end"


async def _begins_to_serve(process: Process) -> bool:
    assert process.stdout is not None, "it is a pipe"
    return await process.stdout.readline() == READY


def _send(number: signal.Signals, process: Process) -> None:
    # Its own send_signal polls, and whoever polls first takes the exit code from the event loop.
    with suppress(ProcessLookupError):
        os.kill(process.pid, number)
