import dataclasses
import io
import json

import pytest
from rich.console import Console

from minivllm_bench.machine import MachineFacts
from minivllm_bench.serve.figures import Percentiles, ServeFigures
from minivllm_bench.serve.report import ratios, reservations, to_json, to_table

MACHINE = MachineFacts(
    cpu_model="A CPU",
    num_cpus=2,
    isa_flags=(),
    memory_bytes=1,
    gpus=(),
    operating_system="Linux",
    python="3.11",
    versions={},
    git_commit="0123456789abcdef",
    git_dirty=False,
)
OURS = ServeFigures(
    server="ours",
    load="4 streams",
    num_requests=16,
    errors={},
    output_tokens_per_s=120.0,
    requests_per_s=1.5,
    spread=0.01,
    ttft=Percentiles(11.0, 22.0, 33.0),
    tpot=Percentiles(4.0, 5.0, 6.0),
    itl=Percentiles(7.0, 8.0, 9.0),
    latency=Percentiles(1.0, 2.0, 3.0),
    client_cpu_share=0.1,
    client_us_per_chunk=8.0,
)
PEER = dataclasses.replace(OURS, server="peer", output_tokens_per_s=80.0)
DEAD = dataclasses.replace(
    PEER, server="dead", output_tokens_per_s=0.0, errors={"status 500": 16}, ttft=None, tpot=None, itl=None
)


def printed(figures, repeats=3):
    console = Console(width=110, file=io.StringIO())
    console.print(to_table(figures, MACHINE, "title", repeats))
    return console.file.getvalue()


def test_the_first_server_is_compared_with_the_others_of_its_load():
    other_load = dataclasses.replace(PEER, load="1 stream")
    (ratio,) = ratios([OURS, PEER, DEAD, other_load])
    assert (ratio.load, ratio.server, ratio.peer, ratio.ratio) == ("4 streams", "ours", "peer", 1.5)


@pytest.mark.parametrize(
    ("rows", "machine", "repeats", "said"),
    [
        ([OURS], dataclasses.replace(MACHINE, git_dirty=True), 3, "uncommitted"),
        ([OURS], MACHINE, 2, "2 of at least 3 repeats"),
        ([DEAD], MACHINE, 3, "dead, 4 streams: 16 of 16 requests failed"),
        ([dataclasses.replace(OURS, client_cpu_share=0.9)], MACHINE, 3, "90% busy"),
    ],
)
def test_what_makes_figures_worthless_is_named(rows, machine, repeats, said):
    (reason,) = reservations(rows, machine, repeats)
    assert said in reason


def test_good_figures_have_no_reservation():
    assert reservations([OURS, PEER], MACHINE, 3) == ()


def test_the_table_has_all_columns_and_the_ratio_beside_the_peer():
    text = printed([OURS, PEER])
    ours, peer = (line for line in text.splitlines() if "1.50" in line)
    assert ours.split() == [
        "4",
        "streams",
        "ours",
        "120.0",
        "1.50",
        "11.0",
        "22.0",
        "33.0",
        "4.0",
        "9.0",
        "0",
    ]
    assert peer.split() == ["peer", "80.0", "1.50", "11.0", "22.0", "33.0", "4.0", "9.0", "0", "1.50x"]
    assert "client: 8 µs a chunk" in text
    assert "do not count" not in text


def test_a_single_server_has_no_ratio_and_failures_are_spelled_out():
    text = printed([DEAD])
    assert "÷" not in text
    assert "16 failed: status 500" in text
    assert "do not count" in text


def test_json_has_everything():
    report = json.loads(to_json([OURS, PEER], MACHINE, {"seed": 3}, 3))
    assert report["schema"] == 1
    assert report["machine"]["cpu_model"] == "A CPU"
    assert report["settings"] == {"seed": 3}
    assert report["reservations"] == []
    assert report["rows"][0]["ttft"] == {"p50_ms": 11.0, "p95_ms": 22.0, "p99_ms": 33.0}
    assert report["ratios"][0]["ratio"] == 1.5
