"""The command `minivllm-bench soak`."""

import asyncio
import dataclasses
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import NamedTuple

from rich.console import Console

from minivllm_bench.errors import EngineFailed, InvalidSetting, SoakFailed
from minivllm_bench.machine import MachineFacts, read_machine
from minivllm_bench.report_file import require_folder
from minivllm_bench.serve.comparison import first_model
from minivllm_bench.serve.endpoint import Endpoint
from minivllm_bench.serve.server_process import ServerProcess
from minivllm_bench.soak.cases import Case, CaseLimits, Kind, draw_cases
from minivllm_bench.soak.checks import (
    Check,
    check_answers_again,
    check_exit,
    check_log,
    check_memory,
    check_rest,
    check_traffic,
)
from minivllm_bench.soak.memory import MemoryGrowth, resident_bytes
from minivllm_bench.soak.options import SoakOptions
from minivllm_bench.soak.report import to_json, to_tables
from minivllm_bench.soak.traffic import Traffic, TrafficLog, TrafficPlan
from minivllm_bench.soak.visitor import End, Visitor

REPORT_WIDTH = 110


class _Soaked(NamedTuple):
    log: TrafficLog
    checks: tuple[Check, ...]
    metrics: Mapping[str, float]


def soak(options: SoakOptions) -> None:
    """Let clients of every kind loose on a server for a while, and check each answer and what is left in the end."""
    require_folder(options.json_file)
    limits = CaseLimits(
        options.cases, options.vocab_size, options.input_len, options.output_len, _parse_kinds(options.kinds)
    )
    cases = draw_cases(limits, options.seed)
    machine = read_machine()
    with ExitStack() as opened, Console(stderr=True).status("starting the server") as status:
        process = None
        if options.url is None:
            process = opened.enter_context(
                ServerProcess(options.start, api_key=options.api_key, start_timeout_s=options.start_timeout_s)
            )
        soaked = _soak(options, cases, process, status.update)
        status.stop()
        _report(soaked, machine, options)
        failed = [check.name for check in soaked.checks if check.has_passed is False]
        if failed:
            where = "" if process is None else f" (log: {process.log})"
            raise SoakFailed(f"the soak failed, it does not hold that: {'; '.join(failed)}{where}")


def _parse_kinds(text: str) -> tuple[Kind, ...]:
    """The kinds of a list with commas.

    Raises:
        InvalidSetting: one of them does not exist.
    """
    try:
        return tuple(map(Kind, text.split(",")))
    except ValueError as error:
        raise InvalidSetting(f"--kinds: {error}; there are {', '.join(Kind)}") from error


def _report(soaked: _Soaked, machine: MachineFacts, options: SoakOptions) -> None:
    console = Console(width=REPORT_WIDTH)
    for table in to_tables(*soaked):
        console.print(table)
    if options.json_file is not None:
        settings = {**dataclasses.asdict(options), "json_file": str(options.json_file), "api_key": None}
        options.json_file.write_text(to_json(*soaked, machine, settings), encoding="utf-8")


def _soak(
    options: SoakOptions,
    cases: tuple[Case, ...],
    process: ServerProcess | None,
    announce: Callable[[str], None],
) -> _Soaked:
    """The soak itself, against a server started here or another one."""
    endpoint = Endpoint.parse(options.url or "", options.api_key) if process is None else process.endpoint
    visitor = Visitor(endpoint, options.model or first_model(endpoint), timeout_s=options.timeout_s)
    plan = TrafficPlan(
        duration_s=60 * options.minutes,
        num_visitors=options.visitors,
        burst_size=options.burst_size,
        burst_every_s=options.burst_every_s,
        seed=options.seed,
    )

    def read_memory() -> int | None:
        return None if process is None else resident_bytes(process.pid)

    async def run() -> _Soaked:
        announce(f"{len(cases)} requests alone")
        await _ask_alone(visitor, cases)
        announce(f"traffic for {options.minutes:g} minutes")
        log = await Traffic(visitor, cases, plan, read_memory).run()
        announce("checks")
        rest, metrics = await check_rest(visitor)
        again = await check_answers_again(visitor, cases)
        return _Soaked(
            log, (check_traffic(log), again, rest, check_memory(MemoryGrowth.fit(log.samples))), metrics
        )

    soaked = asyncio.run(run())
    ended = check_exit(None if process is None else process.stop())
    clean = check_log(None if process is None else process.log)
    return soaked._replace(checks=(*soaked.checks, clean, ended))


async def _ask_alone(visitor: Visitor, cases: tuple[Case, ...]) -> None:
    """Learn what each case gives when nothing else runs.

    Raises:
        EngineFailed: the server does not answer them.
    """
    for case in cases:
        visit = await visitor.ask(case)
        if visit.end is not End.ANSWERED:
            raise EngineFailed(f"a request alone failed: {visit.end}: {visit.fault}")
