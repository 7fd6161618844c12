import os
import signal
import subprocess
import sys

import pytest

from minivllm_scheduler.recording import count, read_recording, write_recording
from minivllm_scheduler.simulation import read_trace, trace_of
from minivllm_scheduler.simulation.__main__ import main


@pytest.fixture
def run_file(recording, tmp_path):
    path = tmp_path / "run.jsonl"
    write_recording(recording, path)
    return path


@pytest.mark.parametrize("hash_seed", ["1", "4242"])
def test_a_replay_in_another_process_makes_the_same_file(recording, run_file, tmp_path, hash_seed):
    inputs, output = tmp_path / "inputs.jsonl", tmp_path / "replayed.jsonl"
    write_recording(recording.without_outputs(), inputs)
    command = [sys.executable, "-m", "minivllm_scheduler.simulation", "replay", str(inputs), str(output)]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{count(recording)}\n"
    assert output.read_bytes() == run_file.read_bytes()


def test_equal_recordings_compare_equal(recording, run_file, capsys):
    assert main(["compare", str(run_file), str(run_file)]) == 0
    assert capsys.readouterr().out == f"{len(recording.outputs())} steps are equal\n"


def test_the_first_differing_step_is_printed(run_file, tmp_path, capsys):
    other = tmp_path / "other.jsonl"
    lines = run_file.read_text().splitlines(keepends=True)
    number = next(i for i, line in enumerate(lines) if '"output":[7,' in line)
    lines[number] = lines[number].replace('"output":[7,[["', '"output":[7,[["x')
    other.write_text("".join(lines))
    assert main(["compare", str(run_file), str(other)]) == 1
    assert capsys.readouterr().out.startswith("step 7 differs in rows[0]: ")


def test_a_replay_that_cannot_go_on_keeps_what_it_has(run_file, tmp_path, capsys):
    output = tmp_path / "replayed.jsonl"
    lines = [line for line in run_file.read_text().splitlines(keepends=True) if '"sampled"' not in line]
    run_file.write_text("".join(lines))
    assert main(["replay", str(run_file), str(output)]) == 1
    assert "asks for a result" in capsys.readouterr().err
    assert read_recording(output).outputs()


def test_a_file_that_is_no_recording_is_refused(tmp_path, capsys):
    path = tmp_path / "run.jsonl"
    path.write_text("no\n")
    assert main(["compare", str(path), str(path)]) == 2
    assert "line 1 is not JSON" in capsys.readouterr().err
    assert main(["replay", str(path), str(tmp_path / "out.jsonl")]) == 2
    assert not (tmp_path / "out.jsonl").exists()
    assert main(["compare", str(path), str(tmp_path / "absent.jsonl")]) == 2


def test_ctrl_c_is_one_line(tmp_path):
    pipe = tmp_path / "recording.jsonl"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "minivllm_scheduler.simulation", "compare", str(pipe), str(pipe)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        with pipe.open("w"):  # waits for a reader
            process.send_signal(signal.SIGINT)
        # A signal that comes a moment before the reader waits does not wake it; the end of the pipe does.
        assert process.stderr.read() == "interrupted\n"
        assert process.wait() == 130


def test_a_trace_is_written_for_the_simulator(recording, run_file, tmp_path, capsys):
    path = tmp_path / "trace.csv"
    assert main(["trace", str(run_file), str(path)]) == 0
    trace = read_trace(path)
    assert trace == trace_of(recording)
    assert capsys.readouterr().out == f"{trace.num_requests} requests\n"


def test_a_trace_of_another_format_is_refused(run_file, tmp_path, capsys):
    assert main(["trace", str(run_file), str(tmp_path / "trace.xml")]) == 2
    assert "trace.xml" in capsys.readouterr().err
