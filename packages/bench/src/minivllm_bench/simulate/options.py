"""The options of `minivllm-bench simulate`: type, help and limits of each."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Victim(StrEnum):
    """Who is preempted."""

    LIFO = "lifo"
    LEAST_COMPUTED = "least-computed"
    COST_AWARE = "cost-aware"


class Admission(StrEnum):
    """How much room an admission must leave."""

    WATERMARK = "watermark"
    RESERVE_ALL = "reserve-all"


_LENGTH = "N, uniform:LOW:HIGH or lognormal:MEDIAN:SIGMA"

Trace = Annotated[
    Path | None, typer.Option(help="A .csv or .jsonl file of requests, in place of a workload.")
]
Requests = Annotated[int, typer.Option(min=1, help="Requests of the workload.")]
Arrivals = Annotated[str, typer.Option(help="poisson:RATE, gamma:RATE:CV or closed:USERS[:THINK_TIME_S].")]
PromptLen = Annotated[str, typer.Option(help=f"Prompt tokens: {_LENGTH}.")]
OutputLen = Annotated[str, typer.Option(help=f"Output tokens: {_LENGTH}.")]
SharedPrefix = Annotated[
    str | None, typer.Option(help="GROUPS:TOKENS: common beginnings, on top of --prompt-len.")
]
Turns = Annotated[str, typer.Option(help=f"Requests of a conversation: {_LENGTH}.")]
TurnGap = Annotated[float, typer.Option(help="Mean seconds between an answer and the next turn.")]
Seed = Annotated[int, typer.Option(help="Of the workload.")]
Cost = Annotated[
    str,
    typer.Option(
        help="constant:SECONDS, linear:TERM=SECONDS,…, roofline:DEVICE:MODEL or calibrate's .json file."
    ),
]
Host = Annotated[float, typer.Option(help="Host seconds per step, on top of the cost.")]
NumBlocks = Annotated[int, typer.Option(min=1, help="KV blocks in the pool.")]
BlockSize = Annotated[int, typer.Option(min=1, help="Tokens per block.")]
PrefixCaching = Annotated[bool, typer.Option(help="Compute equal prefixes once.")]
RunAhead = Annotated[bool, typer.Option(help="Schedule the next step while one is on the device.")]
MaxNumSeqs = Annotated[int, typer.Option(help="Most requests running at once.")]
MaxNumBatchedTokens = Annotated[int, typer.Option(help="Token budget of a step.")]
MaxModelLen = Annotated[int, typer.Option(help="Most tokens of a request.")]
MaxNumWaiting = Annotated[int, typer.Option(help="Most requests waiting; more are refused.")]
VictimChoice = Annotated[Victim, typer.Option(help="Who is preempted.")]
AdmissionChoice = Annotated[Admission, typer.Option(help="Room that an admission must leave.")]
Sweep = Annotated[
    str | None, typer.Option(help="NAME=VALUE,VALUE,…: one simulation each, such as num_blocks=500,1000.")
]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the results to this file.")]
PlotFile = Annotated[
    Path | None,
    typer.Option(
        "--plot", help="Write an SVG: TTFT over the swept setting; without a sweep KV use over time."
    ),
]
