import os
import signal

import pytest

from minivllm_bench.errors import BenchError, EngineFailed
from minivllm_bench.serve.client_pool import ClientPool
from minivllm_bench.serve.endpoint import Endpoint
from minivllm_bench.serve.load import LoadTarget, Streams, split
from minivllm_bench.workloads import BenchRequest


@pytest.fixture(scope="module")
def pool():
    with ClientPool(2) as clients:
        yield clients


def shares(url, num_processes=2):
    requests = [BenchRequest((index,), 2) for index in range(8)]
    target = LoadTarget(endpoint=Endpoint.parse(url), model="m", timeout_s=10)
    return split(Streams(4), requests, target, num_processes=num_processes, seed="s")


def test_processes_share_a_run_and_can_run_again(scripted, pool):
    for _ in range(2):
        reports = pool.run(shares(scripted.url))
        assert [len(report.records) for report in reports] == [4, 4]
        assert all(record.error is None for report in reports for record in report.records)
    assert sorted(body["prompt"][0] for body, _ in scripted.script.requests) == sorted([*range(8)] * 2)


def test_fewer_shares_than_processes_are_fine(scripted, pool):
    (report,) = pool.run(shares(scripted.url, num_processes=1))
    assert len(report.records) == 8


def test_what_a_client_raises_is_said(pool):
    (broken,) = shares("http://127.0.0.1:1", num_processes=1)
    object.__setattr__(broken, "timeout_s", "soon")
    with pytest.raises(BenchError, match="client process failed"):
        pool.run([broken])


def test_a_process_that_dies_is_said_and_closing_is_possible(scripted):
    with ClientPool(1) as clients:
        clients.run(shares(scripted.url, num_processes=1))
        process, _ = clients._members[0]
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        with pytest.raises(EngineFailed, match="ended"):
            clients.run(shares(scripted.url, num_processes=1))
