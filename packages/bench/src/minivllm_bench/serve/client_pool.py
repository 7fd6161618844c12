"""Client processes, so that the client is as fast as the cores it is given: each sends its share of a run."""

import signal
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Self

from minivllm_bench.errors import BenchError, EngineFailed
from minivllm_bench.serve.client import Client, ShareReport
from minivllm_bench.serve.load import Share

_STOP_WITHIN_S = 5.0


class ClientPool:
    """Processes that run clients; all start a run together, each with its requests already encoded."""

    def __init__(self, num_processes: int) -> None:
        """Start the processes."""
        context = get_context("spawn")
        self._members = []
        for _ in range(num_processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve_shares, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._members.append((process, ours))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def num_processes(self) -> int:
        """How many shares can run at once."""
        return len(self._members)

    def run(self, shares: Sequence[Share]) -> tuple[ShareReport, ...]:
        """Send shares, one per process, at most as many as there are.

        Raises:
            EngineFailed: a client process ended.
        """
        assert len(shares) <= len(self._members), "a share needs a process of its own"
        lines = [ours for _, ours in self._members[: len(shares)]]
        try:
            for line, share in zip(lines, shares, strict=True):
                line.send(share)
            for line in lines:
                line.recv()
            for line in lines:
                line.send(None)
            return tuple(_checked(line.recv()) for line in lines)
        except (EOFError, ConnectionError) as error:
            raise EngineFailed("a client process ended") from error

    def close(self) -> None:
        """End the processes. Twice is harmless."""
        for process, ours in self._members:
            ours.close()
            process.join(_STOP_WITHIN_S)
            if process.is_alive():
                process.kill()
        self._members = []


def _checked(report: ShareReport | str) -> ShareReport:
    if isinstance(report, str):
        raise BenchError(f"a client process failed: {report}")
    return report


def serve_shares(line: "Connection[ShareReport | str | None, Share | None]") -> None:
    """The life of a client process: a share comes, None goes, None comes, and the report goes."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # The parent ends this process; a second traceback helps nobody.
    while True:
        try:
            share = line.recv()
        except EOFError:
            return
        assert share is not None, "a run begins with a share"
        client = Client(share)
        line.send(None)
        line.recv()
        try:
            line.send(client.run())
        except Exception as error:
            line.send(f"{type(error).__name__}: {error}")
