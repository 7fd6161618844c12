"""The options of `minivllm-bench serve`: type, help, limits and default of each."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from minivllm_scheduler.simulation import MAX_LENGTH_TOKENS

DEFAULT_URL = "http://127.0.0.1:8000"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Which servers, which load, and what to do with the figures; the help of each option says what it is."""

    url: Annotated[
        list[str] | None, typer.Option(help=f"A running server; several take turns. [default: {DEFAULT_URL}]")
    ] = None
    start: Annotated[
        list[str] | None,
        typer.Option(
            help="Start a server with this command, in which {port} stands for a free port; repeatable."
        ),
    ] = None
    name: Annotated[
        list[str] | None, typer.Option(help="Name in the report, for each --url, then each --start.")
    ] = None
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Model in the requests, for all servers or each; else the first that a server lists."
        ),
    ] = None
    concurrency: Annotated[str, typer.Option(help="Comma-separated numbers of streams that never pause.")] = (
        "1,4,16"
    )
    request_rate: Annotated[
        str | None,
        typer.Option(help="Comma-separated requests per second (Poisson), in place of --concurrency."),
    ] = None
    num_requests: Annotated[
        int | None, typer.Option(min=1, help="Per run; else 4 per stream, at least 8, or 100 at a rate.")
    ] = None
    input_len: Annotated[
        int, typer.Option(min=1, max=MAX_LENGTH_TOKENS, help="Prompt tokens of each request.")
    ] = 256
    output_len: Annotated[
        int, typer.Option(min=1, max=MAX_LENGTH_TOKENS, help="Output tokens of each request.")
    ] = 128
    vocab_size: Annotated[int, typer.Option(min=1, help="Prompts are drawn from the ids below it.")] = 32_000
    repeats: Annotated[int, typer.Option(min=1, help="Timed runs per server and load.")] = 3
    processes: Annotated[int, typer.Option(min=1, help="Client processes.")] = 1
    seed: Annotated[int, typer.Option(help="Of prompts and arrivals.")] = 0
    api_key: Annotated[str | None, typer.Option(help="Sent to every server.")] = None
    timeout_s: Annotated[float, typer.Option(min=0.1, help="Longest wait for an answer.")] = 600.0
    start_timeout_s: Annotated[float, typer.Option(min=1, help="Longest wait for a started server.")] = 600.0
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")] = None
