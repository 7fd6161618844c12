import io
import json

from rich.console import Console

from minivllm_bench.machine import read_machine
from minivllm_bench.soak.checks import Check
from minivllm_bench.soak.memory import MemorySample
from minivllm_bench.soak.report import to_json, to_tables
from minivllm_bench.soak.traffic import TrafficLog
from minivllm_bench.soak.visitor import End, Visit

METRICS = {"minivllm:num_preemptions_total": 12.0, "other": 1.0}
CHECKS = (
    Check("log is clean", False, "3 lines"),
    Check("memory is flat", None, "?"),
    Check("rest", True, "!"),
)


def a_log():
    log = TrafficLog()
    for _ in range(3):
        log.add("stream", Visit(End.ANSWERED))
    log.add("burst", Visit(End.FAULT, "lost"))
    log.samples.extend(MemorySample(60.0 * t, 100) for t in range(4))
    return log


def test_tables_show_visits_metrics_and_checks():
    console = Console(width=110, file=io.StringIO())
    for table in to_tables(a_log(), CHECKS, METRICS):
        console.print(table)
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    assert ["stream", "3", "0", "0", "0", "0"] in lines
    assert ["burst", "0", "0", "0", "0", "1"] in lines
    assert ["num", "preemptions", "12"] in lines
    assert ["log", "is", "clean", "NO", "3", "lines"] in lines
    assert ["memory", "is", "flat", "not", "seen", "?"] in lines


def test_without_metrics_there_is_no_table_of_them():
    assert len(list(to_tables(a_log(), CHECKS, {}))) == 2


def test_json_has_everything():
    report = json.loads(to_json(a_log(), CHECKS, METRICS, read_machine(), {"seed": 1}))
    assert report["schema"] == 1
    assert {"kind": "stream", "end": "answered", "count": 3} in report["visits"]
    assert report["faults"] == ["burst: lost"]
    assert report["memory"]["bytes_per_s"] == 0
    assert report["checks"][0] == {"name": "log is clean", "has_passed": False, "detail": "3 lines"}
    assert report["settings"] == {"seed": 1}
