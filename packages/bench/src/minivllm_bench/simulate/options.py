"""The options of `minivllm-bench simulate`: type, help, limits and default of each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final

import typer

from minivllm_scheduler import SchedulerConfig
from minivllm_scheduler.simulation import SimulatedEngine

ENGINE: Final = SimulatedEngine(
    config=SchedulerConfig(
        max_num_seqs=256, max_num_batched_tokens=2048, max_model_len=8192, max_num_waiting=1_000_000
    ),
    num_blocks=4096,
    run_ahead=True,
)
"""What is simulated where neither an option nor a cost file says otherwise."""


_LENGTH = "N, uniform:LOW:HIGH or lognormal:MEDIAN:SIGMA"

Requests = Annotated[int, typer.Option(min=1, help="Requests of the workload.")]
Arrivals = Annotated[str, typer.Option(help="poisson:RATE, gamma:RATE:CV or closed:USERS[:THINK_TIME_S].")]
PromptLen = Annotated[str, typer.Option(help=f"Prompt tokens: {_LENGTH}.")]
OutputLen = Annotated[str, typer.Option(help=f"Output tokens: {_LENGTH}.")]
Seed = Annotated[int, typer.Option(help="Of the workload.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the results to this file.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """What to simulate, and what to do with the results; the help of each option says what it is.

    None for a part of the engine is what the cost file says of it, else that of `ENGINE`.
    """

    trace: Annotated[
        Path | None, typer.Option(help="A .csv or .jsonl file of requests, in place of a workload.")
    ] = None
    requests: Requests = 1000
    arrivals: Arrivals = "poisson:1"
    prompt_len: PromptLen = "512"
    output_len: OutputLen = "128"
    max_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="What requests ask for; a stop id ends answers that are shorter."),
    ] = None
    shared_prefix: Annotated[
        str | None, typer.Option(help="GROUPS:TOKENS: common beginnings, on top of --prompt-len.")
    ] = None
    turns: Annotated[str, typer.Option(help=f"Requests of a conversation: {_LENGTH}.")] = "1"
    turn_gap_s: Annotated[float, typer.Option(help="Mean seconds between an answer and the next turn.")] = 0.0
    classes: Annotated[
        str | None, typer.Option(help="TENANT:PRIORITY:SHARE,…: whose requests they are, and how urgent.")
    ] = None
    seed: Seed = 0
    cost: Annotated[
        str,
        typer.Option(
            help="constant:SECONDS, linear:TERM=SECONDS,…, roofline:DEVICE:MODEL or calibrate's .json file, "
            "which also brings the limits of its engine as defaults."
        ),
    ] = "roofline:h100:llama-3.1-8b"
    host_s: Annotated[float, typer.Option(help="Host seconds per step, on top of the cost.")] = 0.0
    num_blocks: Annotated[
        int | None, typer.Option(min=1, help="KV blocks in the pool.", show_default=str(ENGINE.num_blocks))
    ] = None
    block_size: Annotated[
        int | None, typer.Option(min=1, help="Tokens per block.", show_default=str(ENGINE.block_size))
    ] = None
    prefix_caching: Annotated[
        bool | None, typer.Option(help="Compute equal prefixes once.", show_default="on")
    ] = None
    run_ahead: Annotated[
        bool | None,
        typer.Option(help="Schedule the next step while one is on the device.", show_default="on"),
    ] = None
    max_num_seqs: Annotated[
        int | None,
        typer.Option(help="Most requests running at once.", show_default=str(ENGINE.config.max_num_seqs)),
    ] = None
    max_num_batched_tokens: Annotated[
        int | None,
        typer.Option(help="Token budget of a step.", show_default=str(ENGINE.config.max_num_batched_tokens)),
    ] = None
    max_model_len: Annotated[
        int | None,
        typer.Option(help="Most tokens of a request.", show_default=str(ENGINE.config.max_model_len)),
    ] = None
    max_num_waiting: Annotated[
        int | None,
        typer.Option(
            help="Most requests waiting; more are refused.", show_default=str(ENGINE.config.max_num_waiting)
        ),
    ] = None
    prefill_chunk_size: Annotated[
        int | None,
        typer.Option(help="Most tokens of one request in a step.", show_default="the whole budget"),
    ] = None
    order: Annotated[
        str,
        typer.Option(help="Who waits in front: fcfs, priority[:AGEING_S] or fair-share[:TENANT=WEIGHT…]."),
    ] = "fcfs"
    max_overtaking: Annotated[
        int | None,
        typer.Option(
            help="Requests that may pass the oldest one in a row, whatever the order.",
            show_default=str(ENGINE.config.max_overtaking),
        ),
    ] = None
    admission: Annotated[
        str, typer.Option(help="Room that an admission must leave: watermark or reserve-all.")
    ] = "watermark"
    watermark: Annotated[
        float | None,
        typer.Option(
            help="Share of the pool that an admission leaves free.",
            show_default=str(ENGINE.config.watermark),
        ),
    ] = None
    victim: Annotated[str, typer.Option(help="Who is preempted: lifo, least-computed or cost-aware.")] = (
        "lifo"
    )
    sweep: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE,VALUE,…: one simulation each; given twice, one for every pair."),
    ] = None
    json_file: JsonFile = None
    plot: Annotated[
        Path | None,
        typer.Option(help="Write a .png or .svg: a curve over the swept values, else KV use over time."),
    ] = None
    plot_metric: Annotated[
        str | None, typer.Option(help="What the curve shows, such as ttft-p99 or recomputed-tokens.")
    ] = None


SWEPT: Final[Mapping[str, Callable[[str], int | float | str]]] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "num_blocks",
                "block_size",
                "max_num_seqs",
                "max_num_batched_tokens",
                "prefill_chunk_size",
                "max_overtaking",
                "max_tokens",
                "requests",
                "seed",
            ),
            int,
        ),
        **dict.fromkeys(("watermark", "host_s"), float),
        **dict.fromkeys(
            ("arrivals", "prompt_len", "output_len", "cost", "order", "admission", "victim"), str
        ),
    }
)
"""Options that a sweep may change, and what reads a value of each."""
