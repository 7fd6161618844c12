"""The command `minivllm-bench serve`."""

import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from minivllm_bench.errors import InvalidSetting
from minivllm_bench.machine import read_machine
from minivllm_bench.report_file import require_folder
from minivllm_bench.serve.client_pool import ClientPool
from minivllm_bench.serve.comparison import LoadSettings, Server, compare, first_model
from minivllm_bench.serve.endpoint import Endpoint
from minivllm_bench.serve.load import Load, RequestRate, Streams
from minivllm_bench.serve.options import DEFAULT_URL, ServeOptions
from minivllm_bench.serve.report import to_json, to_table
from minivllm_bench.serve.server_process import ServerProcess

TABLE_WIDTH = 110


def serve(options: ServeOptions) -> None:
    """Put servers of the OpenAI API under load, in turns, and time their streams."""
    require_folder(options.json_file)
    loads = parse_loads(options.concurrency, options.request_rate)
    commands = options.start or []
    urls = options.url or ([] if commands else [DEFAULT_URL])
    endpoints = [Endpoint.parse(url, options.api_key) for url in urls]
    names = _names(options.name or [], endpoints, commands)
    models = _models(options.model or [], len(names))
    settings = LoadSettings(
        num_requests=options.num_requests,
        input_len=options.input_len,
        output_len=options.output_len,
        vocab_size=options.vocab_size,
        repeats=options.repeats,
        seed=options.seed,
        timeout_s=options.timeout_s,
    )
    machine = read_machine()
    with ExitStack() as opened, Console(stderr=True).status("") as status:
        for command, name in zip(commands, names[len(urls) :], strict=True):
            status.update(f"starting {name}")
            process = ServerProcess(command, api_key=options.api_key, start_timeout_s=options.start_timeout_s)
            endpoints.append(opened.enter_context(process).endpoint)
        servers = [
            Server(name, endpoint, model or first_model(endpoint))
            for name, endpoint, model in zip(names, endpoints, models, strict=True)
        ]
        clients = opened.enter_context(ClientPool(options.processes))
        figures = compare(servers, loads, settings, clients, status.update)
    title = f"{options.input_len} tokens in, {options.output_len} out; median of {options.repeats}"
    Console(width=TABLE_WIDTH).print(to_table(figures, machine, title, options.repeats))
    if options.json_file is not None:
        shared = {
            **dataclasses.asdict(settings),
            "processes": options.processes,
            "commands": dict(zip(names[len(urls) :], commands, strict=True)),
            "models": {server.name: server.model for server in servers},
        }
        options.json_file.write_text(to_json(figures, machine, shared, options.repeats), encoding="utf-8")


def parse_loads(concurrency: str, request_rate: str | None) -> tuple[Load, ...]:
    """The loads that the options name.

    Raises:
        InvalidSetting: a number is none, is out of its range, or stands twice.
    """
    option, text = (
        ("--concurrency", concurrency) if request_rate is None else ("--request-rate", request_rate)
    )
    loads: list[Load] = []
    for part in text.split(","):
        try:
            load = Streams(int(part)) if request_rate is None else RequestRate(float(part))
        except InvalidSetting as error:
            raise InvalidSetting(f"{option} {text}: {error}") from error
        except ValueError as error:
            raise InvalidSetting(f"{option} {text}: {part!r} is not a number") from error
        if load in loads:
            raise InvalidSetting(f"{option} {text}: {part.strip()} stands twice")
        loads.append(load)
    return tuple(loads)


def _names(given: Sequence[str], endpoints: Sequence[Endpoint], commands: Sequence[str]) -> list[str]:
    """A name for each server: those given, or host and port, or the name of the program."""
    own = [endpoint.name for endpoint in endpoints]
    own += [Path(command.split()[0] if command.split() else "").name for command in commands]
    if given and len(given) != len(own):
        raise InvalidSetting(f"{len(given)} --name for {len(own)} servers")
    names = list(given) or own
    for name in names:
        if names.count(name) > 1:
            raise InvalidSetting(f"two servers are called {name}: tell them apart with --name")
    return names


def _models(given: Sequence[str], num_servers: int) -> list[str | None]:
    """The model for each server: one for all, one for each, or None to ask the server."""
    if len(given) > 1 and len(given) != num_servers:
        raise InvalidSetting(f"{len(given)} --model for {num_servers} servers")
    return list(given) if len(given) > 1 else [given[0] if given else None] * num_servers
