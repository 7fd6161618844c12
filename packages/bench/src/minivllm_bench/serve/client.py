"""The load client of one process: sends its share of the requests and times the answers."""

import asyncio
import json
import time
from collections.abc import Iterator
from typing import NamedTuple

from minivllm_bench.serve.endpoint import Endpoint
from minivllm_bench.serve.exchange import open_exchange
from minivllm_bench.serve.load import Share
from minivllm_bench.serve.streamed_answer import RequestRecord, StreamedAnswer
from minivllm_bench.workloads import BenchRequest

COMPLETIONS = "/v1/completions"


class ShareReport(NamedTuple):
    """What came of a share.

    Attributes:
        records: One per request.
        cpu_s: Processor time that this client spent.
        wall_s: How long it took.
    """

    records: tuple[RequestRecord, ...]
    cpu_s: float
    wall_s: float


class _Job(NamedTuple):
    request: bytes
    output_len: int
    arrival_s: float | None


class Client:
    """Sends a share; everything that can be done before the clock starts is done when it is built."""

    def __init__(self, share: Share) -> None:
        self._endpoint = share.endpoint
        self._num_streams = share.num_streams
        self._timeout_s = share.timeout_s
        arrivals_s = share.arrivals_s or (None,) * len(share.requests)
        self._jobs = [
            _Job(completion_request(share.endpoint, share.model, request), request.output_len, arrival_s)
            for request, arrival_s in zip(share.requests, arrivals_s, strict=True)
        ]

    def run(self) -> ShareReport:
        """Send everything and wait for the answers."""
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        records = asyncio.run(self._run())
        return ShareReport(tuple(records), time.process_time() - cpu_s, time.perf_counter() - wall_s)

    async def _run(self) -> list[RequestRecord]:
        records: list[RequestRecord] = []
        jobs = iter(self._jobs)
        begun_s = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(self._num_streams):
                group.create_task(self._stream(jobs, records, begun_s))
        return records

    async def _stream(self, jobs: Iterator[_Job], records: list[RequestRecord], begun_s: float) -> None:
        """Take a job, answer it, take the next; in an open loop there is a stream for every job."""
        for job in jobs:
            sent_s = time.perf_counter()
            if job.arrival_s is not None:
                sent_s = begun_s + job.arrival_s
                await asyncio.sleep(sent_s - time.perf_counter())
            records.append(await self._exchange(job, sent_s))

    async def _exchange(self, job: _Job, sent_s: float) -> RequestRecord:
        answer = StreamedAnswer(time.perf_counter)
        try:
            async with asyncio.timeout(self._timeout_s):
                exchange = await open_exchange(self._endpoint, job.request, answer.receive)
                await exchange.wait()
        except TimeoutError:
            return RequestRecord(sent_s, (), time.perf_counter(), 0, "time-out")
        except OSError:
            return RequestRecord(sent_s, (), time.perf_counter(), 0, "connection lost")
        return answer.record(sent_s=sent_s, status=exchange.status, output_len=job.output_len)


def completion_request(endpoint: Endpoint, model: str, request: BenchRequest) -> bytes:
    """A streamed, greedy completion of exactly `output_len` tokens."""
    body = {
        "model": model,
        "prompt": request.prompt_token_ids,
        "max_tokens": request.output_len,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return endpoint.request("POST", COMPLETIONS, json.dumps(body).encode())
