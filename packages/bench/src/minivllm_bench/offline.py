"""Offline throughput: whole batches through each engine, in turns.

Every engine warms up on each workload first. Then each repeat draws fresh prompts and gives them to every
engine, one after the other; who goes first rotates, so that a machine that slows down or speeds up favours
nobody. The median over the repeats counts.
"""

import gc
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from minivllm_bench.engines.interface import Engine, TimedRun
from minivllm_bench.errors import InvalidRun, InvalidSetting
from minivllm_bench.workloads import BenchRequest, Workload

WARM_UP_RUN = 0


@dataclass(frozen=True, slots=True)
class Measurement:
    """One engine on one workload; the tuples have an entry per repeat.

    Attributes:
        engine: Name of the engine.
        workload: Name of the workload.
        seconds: Time of each repeat.
        input_tokens: Prompt tokens of each repeat.
        output_tokens: Generated tokens of each repeat.
    """

    engine: str
    workload: str
    seconds: tuple[float, ...]
    input_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]

    @property
    def median_seconds(self) -> float:
        """Median time of a repeat."""
        return statistics.median(self.seconds)

    @property
    def output_tokens_per_s(self) -> float:
        """Median over the repeats of generated tokens per second, prefill included in the time."""
        return _median_rate(self.output_tokens, self.seconds)

    @property
    def input_tokens_per_s(self) -> float:
        """Median over the repeats of prompt tokens per second of the whole run."""
        return _median_rate(self.input_tokens, self.seconds)

    @property
    def spread(self) -> float:
        """(slowest - fastest) / median of the repeats' times: 0 for a single repeat."""
        return (max(self.seconds) - min(self.seconds)) / self.median_seconds


def measure(
    engines: Mapping[str, Engine],
    workloads: Sequence[Workload],
    *,
    repeats: int,
    seed: int,
    announce: Callable[[str], None],
) -> tuple[Measurement, ...]:
    """Time every engine on every workload.

    Args:
        engines: Loaded engines by the name they have in the report.
        workloads: Run in this order.
        repeats: Timed runs per engine and workload.
        seed: Of the prompts.
        announce: Told in a few words what happens next.

    Returns:
        Workload by workload, one measurement per engine in the order given.

    Raises:
        InvalidSetting: fewer than one repeat.
        InvalidRun: an engine generated something other than it was asked for.
        EngineFailed: an engine stopped working.
    """
    if repeats < 1:
        raise InvalidSetting(f"repeats must be at least 1, got {repeats}")
    vocab_size = min(engine.vocab_size for engine in engines.values())
    measurements: list[Measurement] = []
    for workload in workloads:
        batches = [workload.draw(vocab_size, seed=seed, run=run) for run in range(repeats + 1)]
        seconds = _time_in_turns(engines, workload.name, batches, announce)
        measurements += [_measurement(name, workload.name, seconds[name], batches) for name in engines]
    return tuple(measurements)


def _time_in_turns(
    engines: Mapping[str, Engine],
    workload: str,
    batches: Sequence[Sequence[BenchRequest]],
    announce: Callable[[str], None],
) -> dict[str, list[float]]:
    """Seconds of every run by engine; the first run is the warm-up."""
    names = list(engines)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for run, batch in enumerate(batches):
        what = "warm-up" if run == WARM_UP_RUN else f"repeat {run} of {len(batches) - 1}"
        for turn in range(len(names)):
            name = names[(turn + run) % len(names)]
            announce(f"{workload}: {what}, {name}")
            gc.collect()
            seconds[name].append(checked(name, batch, engines[name].run(batch)).seconds)
    return seconds


def checked(name: str, requests: Sequence[BenchRequest], run: TimedRun) -> TimedRun:
    """`run` itself, if every request got exactly the tokens it asked for.

    Raises:
        InvalidRun: a request is missing, or has another number of tokens.
    """
    if len(run.completions) != len(requests):
        raise InvalidRun(f"{name} answered {len(run.completions)} of {len(requests)} requests")
    for index, (request, completion) in enumerate(zip(requests, run.completions, strict=True)):
        if len(completion.token_ids) != request.output_len:
            count = len(completion.token_ids)
            raise InvalidRun(f"{name} gave request {index} {count} tokens, asked for {request.output_len}")
    return run


def _measurement(
    engine: str, workload: str, seconds: Sequence[float], batches: Sequence[Sequence[BenchRequest]]
) -> Measurement:
    timed = batches[WARM_UP_RUN + 1 :]
    return Measurement(
        engine,
        workload,
        tuple(seconds[WARM_UP_RUN + 1 :]),
        tuple(sum(len(request.prompt_token_ids) for request in batch) for batch in timed),
        tuple(sum(request.output_len for request in batch) for batch in timed),
    )


def _median_rate(tokens: Sequence[int], seconds: Sequence[float]) -> float:
    return statistics.median(count / time for count, time in zip(tokens, seconds, strict=True))
