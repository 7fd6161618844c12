"""Latencies and rates of a server under one load, from what its clients saw."""

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from minivllm_bench.serve.client import ShareReport
from minivllm_bench.serve.streamed_answer import RequestRecord
from minivllm_scheduler.simulation import percentile


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles of some durations, in milliseconds."""

    p50_ms: float
    p95_ms: float
    p99_ms: float

    @classmethod
    def of_seconds(cls, values: Sequence[float]) -> "Percentiles | None":
        """The percentiles of durations in seconds; None of none."""
        if not values:
            return None
        ordered = sorted(values)
        return cls(*(1000 * percentile(ordered, percent) for percent in (50, 95, 99)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeFigures:
    """One server under one load; latencies are those of all whole answers of all repeats.

    Attributes:
        server: Its name in the report.
        load: Such as "16 streams".
        num_requests: Sent, in all repeats.
        errors: How many requests failed, by what went wrong.
        output_tokens_per_s: Median over the repeats; tokens of whole answers, over the time from the first request
            to the last answer.
        requests_per_s: Whole answers, likewise.
        spread: Fastest less slowest repeat, over the median.
        ttft: From just before the connection to the first chunk; None if no answer was whole. In an open loop, from
            the planned arrival.
        tpot: Per answer of two tokens or more: the time from first to last chunk over its tokens less one.
        itl: Between neighbouring chunks of an answer; a chunk may hold several tokens.
        latency: From where `ttft` begins to the end of the answer.
        client_cpu_share: Processor time over time of the busiest client process; near 1, the client is the limit.
        client_us_per_chunk: Processor time of all client processes per chunk, in microseconds.
    """

    server: str
    load: str
    num_requests: int
    errors: dict[str, int]
    output_tokens_per_s: float
    requests_per_s: float
    spread: float
    ttft: Percentiles | None
    tpot: Percentiles | None
    itl: Percentiles | None
    latency: Percentiles | None
    client_cpu_share: float
    client_us_per_chunk: float


def summarize(server: str, load: str, runs: Sequence[Sequence[ShareReport]]) -> ServeFigures:
    """The figures of a server under a load.

    Args:
        server: Its name.
        load: Its name.
        runs: A sequence of client reports per repeat.
    """
    repeats = [[record for report in run for record in report.records] for run in runs]
    records = [record for repeat in repeats for record in repeat]
    whole = [record for record in records if record.error is None]
    rates = [_rate(repeat, sum(record.output_tokens for record in repeat)) for repeat in repeats]
    reports = [report for run in runs for report in run]
    num_chunks = sum(len(record.chunk_times_s) for record in records)
    median = statistics.median(rates)
    return ServeFigures(
        server=server,
        load=load,
        num_requests=len(records),
        errors=dict(Counter(record.error for record in records if record.error is not None)),
        output_tokens_per_s=median,
        requests_per_s=statistics.median(
            _rate(repeat, sum(record.error is None for record in repeat)) for repeat in repeats
        ),
        spread=(max(rates) - min(rates)) / median if median else 0.0,
        ttft=Percentiles.of_seconds([record.chunk_times_s[0] - record.sent_s for record in whole]),
        tpot=Percentiles.of_seconds(list(_token_times(whole))),
        itl=Percentiles.of_seconds(
            [after - before for record in whole for before, after in pairwise(record.chunk_times_s)]
        ),
        latency=Percentiles.of_seconds([record.ended_s - record.sent_s for record in whole]),
        client_cpu_share=max(report.cpu_s / report.wall_s for report in reports),
        client_us_per_chunk=1e6 * sum(report.cpu_s for report in reports) / max(num_chunks, 1),
    )


def _rate(records: Sequence[RequestRecord], count: int) -> float:
    """`count` per second of the time from the first request to the last answer."""
    return count / (max(each.ended_s for each in records) - min(each.sent_s for each in records))


def _token_times(records: Sequence[RequestRecord]) -> Iterator[float]:
    for record in records:
        if record.output_tokens > 1:
            span_s = record.chunk_times_s[-1] - record.chunk_times_s[0]
            yield span_s / (record.output_tokens - 1)
