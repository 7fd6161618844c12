"""The program of one of several HTTP processes; see `api_processes`."""

import asyncio
import os
import socket
import sys
import threading

import msgspec

from minivllm_runtime.engine.async_engine import AsyncEngine
from minivllm_runtime.engine.process.remote_engine import RemoteEngine
from minivllm_server.api_processes import READY, Assignment
from minivllm_server.logs import configure_logging
from minivllm_server.optional_tracing import optional_tracing
from minivllm_server.server import serve_engine
from minivllm_server.settings import ServerSettings


def main() -> int:
    """Takes the assignment from standard input, serves until a signal, and ends at once when input does.

    Returns:
        The exit code: 0 after a signal.
    """
    line = sys.stdin.buffer.readline()
    if not line:  # the parent is gone already
        return 1
    assignment = msgspec.json.decode(line, type=Assignment)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    settings = ServerSettings.model_validate(assignment.settings)
    engine = AsyncEngine(RemoteEngine(assignment.engine_address))
    configure_logging(settings.log_format, settings.log_level)
    with (
        socket.socket(fileno=assignment.listener) as listener,
        optional_tracing(settings.otlp_endpoint) as trace,
    ):
        asyncio.run(
            serve_engine(
                engine,
                listener,
                settings,
                on_ready=lambda _server: _tell_parent(READY),
                trace=trace,
                shared=assignment.shared,
            )
        )
    return 0


def _tell_parent(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def _end_with_parent() -> None:
    # Not through sys.stdin, which the interpreter closes when it ends: it aborts if a thread is reading then.
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
