import dataclasses
import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from minivllm_bench.machine import MachineFacts
from minivllm_bench.offline import Measurement
from minivllm_bench.report import RunSettings, ratios, reservations, to_json, to_table

MACHINE = MachineFacts(
    cpu_model="A CPU",
    num_cpus=2,
    isa_flags=("avx2",),
    memory_bytes=1 << 30,
    gpus=(),
    operating_system="Linux 6",
    python="3.11.7",
    versions={"torch": "2.13.0"},
    git_commit="0123456789abcdef",
    git_dirty=False,
)
SETTINGS = RunSettings(
    model="smollm2",
    dtype="bfloat16",
    device="cpu",
    num_threads=2,
    repeats=3,
    seed=0,
    temperature=0.0,
    input_len=None,
    output_len=64,
)
MEASUREMENTS = (
    Measurement("minivllm", "decode_b1", (1.0, 2.0, 4.0), (128,) * 3, (64,) * 3),
    Measurement("hf", "decode_b1", (3.0, 3.0, 3.0), (128,) * 3, (64,) * 3),
    Measurement("vllm", "decode_b1", (1.0, 1.0, 1.0), (128,) * 3, (64,) * 3),
    Measurement("minivllm", "decode_b8", (2.0, 2.0, 2.0), (1024,) * 3, (512,) * 3),
    Measurement("hf", "decode_b8", (5.0, 5.0, 5.0), (1024,) * 3, (512,) * 3),
)


def rendered(measurements=MEASUREMENTS, machine=MACHINE, settings=SETTINGS):
    console = Console(file=io.StringIO(), width=80)
    console.print(to_table(measurements, machine, settings))
    return console.file.getvalue()


def test_each_peer_is_compared_with_the_first_engine_of_its_workload():
    found = [(ratio.workload, ratio.engine, ratio.peer, ratio.ratio) for ratio in ratios(MEASUREMENTS)]
    assert found == [
        ("decode_b1", "minivllm", "hf", pytest.approx(1.5)),
        ("decode_b1", "minivllm", "vllm", pytest.approx(0.5)),
        ("decode_b8", "minivllm", "hf", pytest.approx(2.5)),
    ]


@given(times=st.lists(st.floats(0.01, 100.0), min_size=2, max_size=5), tokens=st.integers(1, 10_000))
def test_with_equal_tokens_a_ratio_is_that_of_the_median_times(times, tokens):
    engines = [Measurement(str(index), "w", (time,), (1,), (tokens,)) for index, time in enumerate(times)]
    assert [ratio.ratio for ratio in ratios(engines)] == [
        pytest.approx(time / times[0]) for time in times[1:]
    ]


def test_the_json_has_the_machine_the_settings_and_a_row_per_measurement():
    report = json.loads(to_json(MEASUREMENTS, MACHINE, SETTINGS))
    assert set(report) == {
        *("schema", "machine", "settings", "reservations", "start_up_s", "rows", "ratios", "neighbours")
    }
    assert report["schema"] == 1
    assert report["machine"] == json.loads(json.dumps(dataclasses.asdict(MACHINE)))
    assert report["settings"] == dataclasses.asdict(SETTINGS)
    assert len(report["rows"]) == len(MEASUREMENTS)
    assert report["rows"][0] == {
        "engine": "minivllm",
        "workload": "decode_b1",
        "model": "smollm2",
        "dtype": "bfloat16",
        "device": "cpu",
        "output_tokens_per_s": 32.0,
        "input_tokens_per_s": 64.0,
        "seconds": 2.0,
        "seconds_min": 1.0,
        "seconds_max": 4.0,
        "spread": 1.5,
        "limit_output_tokens_per_s": None,
    }
    assert report["ratios"][1] == {
        "workload": "decode_b1",
        "engine": "minivllm",
        "peer": "vllm",
        "ratio": 0.5,
    }


def test_the_table_shows_ratios_beside_peers_and_the_spread():
    lines = [line for line in rendered().splitlines() if re.search(r"\d%", line)]
    assert ["1.50x" in line for line in lines] == [False, True, False, False, False]
    assert ["2.50x" in line for line in lines] == [False, False, False, False, True]
    assert "150.0%" in lines[0]
    assert "decode_b1" in lines[0]
    assert "decode_b8" in lines[3]


def test_one_engine_alone_is_compared_with_nothing():
    assert not re.search(r"\dx", rendered(MEASUREMENTS[:1]))


def test_the_longest_names_and_largest_numbers_fit_80_columns():
    seconds, tokens = (0.1, 99_999.9, 99_999.9), (10_000_000,) * 3
    longest = [
        Measurement(engine, "prefill_64x1024", seconds, tokens, tokens)
        for engine in ("minivllm", "nano-vllm")
    ]
    text = rendered(longest)
    for cell in ("prefill_64x1024", "minivllm", "99999.900", "1.00x"):
        assert cell in text


@pytest.mark.parametrize(
    ("machine", "settings", "reason"),
    [
        (dataclasses.replace(MACHINE, git_dirty=True), SETTINGS, "uncommitted"),
        (dataclasses.replace(MACHINE, git_commit=None), SETTINGS, "not run from a checkout"),
        (MACHINE, dataclasses.replace(SETTINGS, repeats=2), "2 of at least 3"),
    ],
)
def test_figures_that_do_not_count_say_why(machine, settings, reason):
    assert [reason in found for found in reservations(machine, settings, MEASUREMENTS)] == [True]
    assert "do not count" in rendered(machine=machine, settings=settings)
    assert reason in json.loads(to_json(MEASUREMENTS, machine, settings))["reservations"][0]


def test_figures_that_count_have_no_reservation():
    assert reservations(MACHINE, SETTINGS, MEASUREMENTS) == ()
    assert "do not count" not in rendered()


def test_a_size_that_falls_off_beside_its_neighbour_does_not_count_unless_it_is_a_peer_s():
    beside = [Measurement("hf", "decode_b7", (9.0,) * 3, (1,) * 3, (1,) * 3)]
    assert reservations(MACHINE, SETTINGS, [*MEASUREMENTS, *beside]) == ()
    beside.append(Measurement("minivllm", "decode_b7", (9.0,) * 3, (1024,) * 3, (448,) * 3))
    (reason,) = reservations(MACHINE, SETTINGS, [*MEASUREMENTS, *beside])
    assert "decode_b7, and 32.0 of decode_b8: 78% less" in reason
    found = json.loads(to_json([*MEASUREMENTS, *beside], MACHINE, SETTINGS))["neighbours"]
    assert [(pair["engine"], pair["size"]) for pair in found] == [("minivllm", 8), ("hf", 8)]


def test_the_title_tells_the_temperature_of_sampling():
    assert "temperature" not in rendered()
    assert "temperature 0.6" in rendered(settings=dataclasses.replace(SETTINGS, temperature=0.6))


def test_the_share_of_a_known_limit_stands_in_the_last_column():
    limits = {"decode_b1": 64.0, "decode_b8": 512.0}
    console = Console(file=io.StringIO(), width=88)
    console.print(to_table(MEASUREMENTS, MACHINE, SETTINGS, limits))
    assert re.findall(r"(\d+)%\s*$", console.file.getvalue(), re.MULTILINE) == ["50", "33", "100", "50", "20"]
    rows = json.loads(to_json(MEASUREMENTS, MACHINE, SETTINGS, limits))["rows"]
    assert [row["limit_output_tokens_per_s"] for row in rows] == [64.0] * 3 + [512.0] * 2


def test_how_long_each_engine_took_to_be_ready_stands_below_the_table():
    start_up_s = {"minivllm": 3.96, "hf": 1.0}
    console = Console(file=io.StringIO(), width=80)
    console.print(to_table(MEASUREMENTS, MACHINE, SETTINGS, start_up_s=start_up_s))
    assert "ready after 4.0 s (minivllm), 1.0 s (hf)\n" in re.sub(r" +\n", "\n", console.file.getvalue())
    assert (
        json.loads(to_json(MEASUREMENTS, MACHINE, SETTINGS, start_up_s=start_up_s))["start_up_s"]
        == start_up_s
    )
