import asyncio

import pytest

from minivllm_bench.soak.cases import Case
from minivllm_bench.soak.checks import (
    MOST_GROWTH_BYTES,
    check_answers_again,
    check_exit,
    check_log,
    check_memory,
    check_rest,
    check_traffic,
)
from minivllm_bench.soak.memory import MemoryGrowth
from minivllm_bench.soak.traffic import TrafficLog
from minivllm_bench.soak.visitor import End, Visit


def test_traffic_passes_without_a_fault():
    log = TrafficLog()
    log.add("whole", Visit(End.ANSWERED))
    check = check_traffic(log)
    assert check.has_passed
    assert check.detail == "1 answers as expected"
    log.add("whole", Visit(End.FAULT, "crossed"))
    check = check_traffic(log)
    assert not check.has_passed
    assert "whole: crossed" in check.detail


@pytest.mark.parametrize(("grown", "passed"), [(0.0, True), (MOST_GROWTH_BYTES + 1.0, False), (-5e9, True)])
def test_memory_may_grow_by_so_much(grown, passed):
    check = check_memory(MemoryGrowth(1 << 30, 2 << 30, 1 << 20, grown))
    assert check.has_passed is passed
    assert "1,024 MiB to 2,048 MiB; later half +60.00 MiB/min" in check.detail


def test_what_is_not_seen_neither_passes_nor_fails():
    assert [check(None).has_passed for check in (check_memory, check_log, check_exit)] == [None] * 3


@pytest.mark.parametrize(
    ("line", "passed"),
    [
        ("2026 INFO minivllm_server request status=400 reason=invalid_request_error", True),
        ("2026 WARNING minivllm_server a client read nothing", False),
        ("2026 ERROR minivllm_server a stream failed", False),
        ('{"time": 1, "level": "error"}', False),
        ("Traceback (most recent call last):", False),
        ("Fatal Python error: _enter_buffered_busy: could not acquire lock", False),
        ("Task exception was never retrieved", True),
        ("Exception ignored in: <coroutine", False),
    ],
)
def test_a_log_is_clean_without_complaints(tmp_path, line, passed):
    log = tmp_path / "x.log"
    log.write_text(f"ready\n{line}\n")
    check = check_log(log)
    assert check.has_passed is passed
    assert passed or line in check.detail


@pytest.mark.parametrize(("status", "passed"), [(0, True), (1, False), (-9, False)])
def test_a_server_ends_well(status, passed):
    assert check_exit(status).has_passed is passed


@pytest.mark.parametrize(
    ("fault", "passed", "said"),
    [(None, True, "all zero"), ("no metrics", None, "404"), ("crossed ids", False, "got")],
)
def test_a_server_comes_to_rest(server, visitor, fault, passed, said):
    server.fault = fault
    check, metrics = asyncio.run(check_rest(visitor))
    assert check.has_passed is passed
    assert said in check.detail
    assert ("minivllm:engine_steps_total" in metrics) is (passed is True)


@pytest.mark.slow
def test_a_gauge_that_stays_up_is_named(server, visitor):
    server.fault = "restless"
    check, _ = asyncio.run(check_rest(visitor))
    assert check.has_passed is False
    assert check.detail == "num_requests_running 1"


def test_answers_are_compared_again(server, visitor):
    case = Case((1,), 2, ignore_eos=True, num_choices=1)
    assert asyncio.run(check_answers_again(visitor, [case])).has_passed
    server.fault = "changed"
    check = asyncio.run(check_answers_again(visitor, [case]))
    assert not check.has_passed
    assert "1 of 1 differ" in check.detail
