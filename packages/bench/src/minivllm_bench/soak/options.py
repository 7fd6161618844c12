"""The options of `minivllm-bench soak`: type, help, limits and default of each."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from minivllm_bench.soak.cases import Kind

DEFAULT_START = (
    "minivllm serve --port {port} --dtype float32 --max-num-seqs 8 --max-num-waiting 16 --num-blocks 40"
)
"""float32, where answers do not depend on what else runs; few seats and few blocks, so that requests queue, are
refused and are preempted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakOptions:
    """Which server, how much traffic for how long; the help of each option says what it is."""

    minutes: Annotated[float, typer.Option(min=0.01, help="How long new requests are made.")] = 30.0
    url: Annotated[
        str | None, typer.Option(help="A running server; its memory, log and exit status are not seen.")
    ] = None
    start: Annotated[
        str, typer.Option(help="Start a server with this command, in which {port} stands for a free port.")
    ] = DEFAULT_START
    model: Annotated[str | None, typer.Option(help="Model in the requests; else the first listed.")] = None
    api_key: Annotated[str | None, typer.Option(help="Sent with every request.")] = None
    visitors: Annotated[int, typer.Option(min=1, help="Clients that never stop.")] = 12
    burst_size: Annotated[int, typer.Option(min=1, help="Requests of a burst, all sent at once.")] = 40
    burst_every_s: Annotated[float, typer.Option(min=0.1, help="Time between bursts.")] = 20.0
    cases: Annotated[int, typer.Option(min=1, help="Different requests.")] = 32
    input_len: Annotated[int, typer.Option(min=1, help="Longest prompt, in tokens.")] = 400
    output_len: Annotated[int, typer.Option(min=1, help="Longest answer, in tokens.")] = 64
    kinds: Annotated[
        str, typer.Option(help="Kinds of requests, by comma; chat and schema need a chat template.")
    ] = ",".join(Kind)
    vocab_size: Annotated[int, typer.Option(min=1, help="Prompts are drawn from the ids below it.")] = 32_000
    seed: Annotated[int, typer.Option(help="Of requests and of what visitors do.")] = 0
    timeout_s: Annotated[float, typer.Option(min=0.1, help="An answer that takes longer is lost.")] = 120.0
    start_timeout_s: Annotated[float, typer.Option(min=1, help="Longest wait for the server.")] = 600.0
    json_file: Annotated[Path | None, typer.Option("--json", help="Write everything to this file.")] = None
