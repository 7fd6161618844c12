"""A server of a taped model in processes of its own, for what a thread cannot show: signals and exit codes."""

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import httpx

from .harness import PATH, eventually
from .wire_client import Stream

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("MINIVLLM_")}


class TapeProcess:
    """A server in a process of its own; its model is held."""

    def __init__(self, process: subprocess.Popen, client: httpx.Client) -> None:
        self.client = client
        self._process = process

    def connect(self) -> httpx.Client:
        """Another client, with connections of its own."""
        return httpx.Client(base_url=self.client.base_url, timeout=60, trust_env=False)

    def allow(self, num_steps: float) -> None:
        """So many steps more."""
        self._tell(str(num_steps))

    @contextlib.contextmanager
    def streams(self, num_streams: int, **body) -> Iterator[list[Stream]]:
        """Streams that have begun, each on a connection of its own, which any HTTP process may have taken."""
        body = {"prompt": "a", "stream": True, **body}
        with contextlib.ExitStack() as stack, ThreadPoolExecutor(num_streams) as threads:
            clients = [stack.enter_context(self.connect()) for _ in range(num_streams)]
            opening = [threads.submit(stack.enter_context, Stream(client, PATH, body)) for client in clients]

            def have_begun() -> bool:
                self.allow(1)
                return all(stream.done() for stream in opening)

            assert eventually(have_begun)
            yield [stream.result() for stream in opening]

    def runs(self, num: int) -> bool:
        """Whether so many requests run soon, whichever HTTP process has them."""

        def page_says_so() -> bool:
            page = self.client.get("/metrics").text
            return (
                re.search(rf"^minivllm:num_requests_running{{.*}} {num}\.0$", page, re.MULTILINE) is not None
            )

        return eventually(page_says_so)

    def fail_once(self) -> None:
        """The next step raises."""
        self._tell("fail")

    def break_down(self) -> None:
        """Every step raises."""
        self._tell("break")

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self) -> tuple[int, str]:
        """Exit code and what was written to stderr."""
        _, stderr = self._process.communicate(timeout=120)
        return self._process.returncode, stderr

    def _tell(self, line: str) -> None:
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()


@contextlib.contextmanager
def tape_process(stderr: int | IO[str] = subprocess.PIPE, **settings) -> Iterator[TapeProcess]:
    """Settings as for `minivllm serve`; however slow the machine is, it has time to drain."""
    defaults = {
        "served_model_name": "scripted",
        "num_blocks": 3000,
        "log_level": "warning",
        "drain_timeout_s": 3600,
    }
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            f"{Path(__file__).parent.name}.serve_tape",
            json.dumps({**defaults, **settings}),
        ],
        cwd=Path(__file__).parents[1],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    ) as process:
        try:
            url = process.stdout.readline().strip()
            assert url, process.communicate()[1]
            with httpx.Client(base_url=url, timeout=30, trust_env=False) as client:
                yield TapeProcess(process, client)
        finally:
            process.kill()
