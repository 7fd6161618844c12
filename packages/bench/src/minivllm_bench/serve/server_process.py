"""A server that a command starts: waited for until it is healthy, stopped by its process id."""

import asyncio
import atexit
import shlex
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO, Self

from minivllm_bench.errors import EngineFailed, InvalidSetting
from minivllm_bench.serve.endpoint import Endpoint
from minivllm_bench.serve.exchange import fetch
from minivllm_bench.serve.streamed_answer import HTTP_OK

PORT_FIELD = "{port}"
_HOST = "127.0.0.1"
_POLL_S = 0.2
_STOP_WITHIN_S = 60.0


class ServerProcess:
    """A running server.

    Attributes:
        endpoint: Where it listens.
        log: The file that its output goes to; it goes away with the server unless something failed.
    """

    def __init__(self, command: str, *, api_key: str | None, start_timeout_s: float) -> None:
        """Start a server and wait until `GET /health` answers 200.

        Args:
            command: Split as a shell would, run without one; `{port}` stands for a free port of 127.0.0.1.
            api_key: Sent to the server with every request.
            start_timeout_s: Longest wait.

        Raises:
            InvalidSetting: the command has no `{port}`, or is not well quoted.
            EngineFailed: the server does not start, ends, or is not healthy in time.
        """
        arguments, self.endpoint = _with_port(command, api_key)
        output: IO[bytes] = tempfile.NamedTemporaryFile(  # noqa: SIM115 - outlives a server that fails
            prefix="minivllm-bench-server-", suffix=".log", delete=False
        )
        self.log = Path(output.name)
        with output:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - the command is the user's own choice
                    arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
                )
            except OSError as error:
                self.log.unlink()
                raise EngineFailed(f"cannot run {arguments[0]}: {error.strerror}") from error
        atexit.register(self.stop)  # a signal may come between any two lines
        try:
            self._wait_until_healthy(start_timeout_s)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Stop the server; its log stays if there was an error, and may say why."""
        self.stop()
        if error is None:
            self.log.unlink()

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._process.pid

    def stop(self) -> int:
        """Ask the server to end, insist after a minute; twice is harmless.

        Returns:
            Its exit status; negative for a signal.
        """
        atexit.unregister(self.stop)
        self._process.terminate()
        try:
            return self._process.wait(_STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _wait_until_healthy(self, timeout_s: float) -> None:
        request = self.endpoint.request("GET", "/health")
        give_up_s = time.monotonic() + timeout_s
        while not _is_healthy(self.endpoint, request):
            if self._process.poll() is not None:
                raise EngineFailed(
                    f"the server ended with status {self._process.returncode}: {self._last_line()} (log: {self.log})"
                )
            if time.monotonic() > give_up_s:
                raise EngineFailed(f"the server is not healthy after {timeout_s:g} s (log: {self.log})")
            time.sleep(_POLL_S)

    def _last_line(self) -> str:
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else "no message"


def _with_port(command: str, api_key: str | None) -> tuple[list[str], Endpoint]:
    """The arguments of a command with a free port in them, and the endpoint at that port."""
    if PORT_FIELD not in command:
        raise InvalidSetting(f"the command {command!r} must say where the port goes: {PORT_FIELD}")
    try:
        arguments = shlex.split(command)
    except ValueError as error:
        raise InvalidSetting(f"the command {command!r} is not well quoted: {error}") from error
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
    filled = [argument.replace(PORT_FIELD, str(port)) for argument in arguments]
    return filled, Endpoint(_HOST, port, api_key=api_key)


def _is_healthy(endpoint: Endpoint, request: bytes) -> bool:
    try:
        return asyncio.run(fetch(endpoint, request, timeout_s=5)).status == HTTP_OK
    except OSError:
        return False
