"""Servers under loads, in turns: warm-up first, fresh prompts each repeat, who goes first rotates."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from minivllm_bench.errors import EngineFailed
from minivllm_bench.serve.client import ShareReport
from minivllm_bench.serve.client_pool import ClientPool
from minivllm_bench.serve.endpoint import Endpoint
from minivllm_bench.serve.exchange import fetch
from minivllm_bench.serve.figures import ServeFigures, summarize
from minivllm_bench.serve.load import Load, LoadTarget, Share, Streams, split
from minivllm_bench.serve.streamed_answer import HTTP_OK
from minivllm_bench.workloads import BenchRequest, Workload, fixed

WARM_UP_RUN = 0
REQUESTS_PER_STREAM = 4
LEAST_REQUESTS = 8
OPEN_LOOP_REQUESTS = 100
WARM_UP_REQUESTS = 8
_MODELS_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Server:
    """A server that takes part.

    Attributes:
        name: In the report.
        endpoint: Where it listens.
        model: The name that its requests carry.
    """

    name: str
    endpoint: Endpoint
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """What all servers of a comparison have in common.

    Attributes:
        num_requests: Per run; None: `REQUESTS_PER_STREAM` for each stream, and `OPEN_LOOP_REQUESTS` in an open loop.
        input_len, output_len: Tokens of each prompt and answer.
        vocab_size: Prompts are drawn from the ids below it.
        repeats: Timed runs.
        seed: Of prompts and arrivals.
        timeout_s: Longest wait for an answer.
    """

    num_requests: int | None
    input_len: int
    output_len: int
    vocab_size: int
    repeats: int
    seed: int
    timeout_s: float

    def requests(self, load: Load, run: int) -> tuple[BenchRequest, ...]:
        """The requests of one run, the same for every server; the warm-up has one per stream."""
        count = self.num_requests or _default_requests(load)
        if run == WARM_UP_RUN:
            count = min(count, load.num_streams if isinstance(load, Streams) else WARM_UP_REQUESTS)
        lengths = (fixed(self.input_len), fixed(self.output_len))
        return Workload(f"serve {load}", count, *lengths).draw(self.vocab_size, seed=self.seed, run=run)


def _default_requests(load: Load) -> int:
    if isinstance(load, Streams):
        return max(REQUESTS_PER_STREAM * load.num_streams, LEAST_REQUESTS)
    return OPEN_LOOP_REQUESTS


def compare(
    servers: Sequence[Server],
    loads: Sequence[Load],
    settings: LoadSettings,
    clients: ClientPool,
    announce: Callable[[str], None],
) -> tuple[ServeFigures, ...]:
    """Put every server under every load.

    Args:
        servers: Running.
        loads: In this order.
        settings: Of the requests.
        clients: Who sends them.
        announce: Told in a few words what happens next.

    Returns:
        Load by load, the figures of each server in the order given.

    Raises:
        EngineFailed: a client process ended.
    """
    found: list[ServeFigures] = []
    for load in loads:
        runs: dict[str, list[tuple[ShareReport, ...]]] = {server.name: [] for server in servers}
        for run in range(settings.repeats + 1):
            what = "warm-up" if run == WARM_UP_RUN else f"repeat {run} of {settings.repeats}"
            for turn in range(len(servers)):
                server = servers[(turn + run) % len(servers)]
                announce(f"{load}: {what}, {server.name}")
                runs[server.name].append(clients.run(_shares(server, load, settings, run, clients)))
        found += [
            summarize(server.name, str(load), runs[server.name][WARM_UP_RUN + 1 :]) for server in servers
        ]
    return tuple(found)


def _shares(
    server: Server, load: Load, settings: LoadSettings, run: int, clients: ClientPool
) -> tuple[Share, ...]:
    """What each client process sends in one run."""
    return split(
        load,
        settings.requests(load, run),
        LoadTarget(endpoint=server.endpoint, model=server.model, timeout_s=settings.timeout_s),
        num_processes=clients.num_processes,
        seed=f"{settings.seed}/{load}/{run}",
    )


def first_model(endpoint: Endpoint) -> str:
    """The first name in the server's list of models.

    Raises:
        EngineFailed: there is no server, or it has no such list.
    """
    request = endpoint.request("GET", "/v1/models")
    try:
        answer = asyncio.run(fetch(endpoint, request, timeout_s=_MODELS_TIMEOUT_S))
    except OSError as error:
        raise EngineFailed(f"no answer from {endpoint.name}: {error}") from error
    if answer.status != HTTP_OK:
        raise EngineFailed(f"{endpoint.name} answers GET /v1/models with status {answer.status}")
    try:
        name: str = json.loads(answer.body)["data"][0]["id"]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise EngineFailed(f"{endpoint.name} has no list of models at /v1/models") from error
    return name
