import io
from dataclasses import fields

import pytest

from minivllm_scheduler import Request, SchedulerConfig
from minivllm_scheduler.errors import InvalidRecording
from minivllm_scheduler.recording import (
    SCHEMA,
    Added,
    Recording,
    Setup,
    line_writer,
    read_recording,
    write_recording,
)
from minivllm_scheduler.recording.json_lines import line_of

CHANGED = {
    "request_id": "a\n\u20ac",
    "prompt_token_ids": (1, 2, 3),
    "max_tokens": 7,
    "stop_token_ids": frozenset({9, 5}),
    "priority": -3,
    "tenant": "t",
    "cache_salt": "\ud800",
    "group": "g",
    "reads_prefix_cache": False,
    "runs_ahead": False,
}
SETUP = Setup(
    config=SchedulerConfig(
        max_num_seqs=3,
        max_num_batched_tokens=4,
        max_model_len=5,
        max_num_waiting=6,
        watermark=0.125,
        prefill_chunk_size=2,
    ),
    num_blocks=7,
    block_size=8,
    prefix_caching=False,
    run_ahead=True,
    policies={"order": "by_arrival"},
)


def test_a_run_is_read_as_it_was_recorded(recording, tmp_path):
    write_recording(recording, tmp_path / "run.jsonl")
    assert read_recording(tmp_path / "run.jsonl") == recording


def test_a_file_may_be_called_by_a_string(recording, tmp_path):
    write_recording(recording, str(tmp_path / "run.jsonl"))
    assert read_recording(str(tmp_path / "run.jsonl")) == recording


def test_every_field_of_a_request_and_of_the_setup_survives(tmp_path):
    assert CHANGED.keys() == {field.name for field in fields(Request)}
    recording = Recording(SETUP, (Added(0.1 + 0.2, (Request(**CHANGED),)),))
    write_recording(recording, tmp_path / "run.jsonl")
    assert read_recording(tmp_path / "run.jsonl") == recording


def test_events_written_one_by_one_make_the_same_file(recording, tmp_path):
    write_recording(recording, tmp_path / "run.jsonl")
    file = io.StringIO()
    record = line_writer(file)
    for event in (recording.setup, *recording.events):
        record(event)
    assert file.getvalue() == (tmp_path / "run.jsonl").read_text()
    assert file.getvalue().isascii()


def test_the_first_line_carries_the_schema_number():
    assert line_of(SETUP).startswith(f'{{"event":"setup","schema":{SCHEMA},')


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2 is not JSON"),
        ("[]", "line 2 has no event of setup, added, "),
        ('{"event":"slept"}', "line 2 has no event of .*slept"),
        ('{"event":["setup"]}', "line 2 has no event of"),
        ('{"event":"aborted","now":"x","request_id":"a"}', r"line 2\.now is 'x', it must be a number"),
        ('{"event":"aborted","now":1.0}', "line 2 lacks 'request_id'"),
        ('{"event":"sampled","result":[0,[[1],["b"]]]}', r"line 2\.result\.token_ids\[1\]\[0\] is 'b'"),
        (
            '{"event":"added","now":1,"requests":[{"request_id":"a","prompt_token_ids":[],"max_tokens":1}]}',
            r"line 2\.requests\[0\]: request 'a' has 0 prompt tokens",
        ),
    ],
)
def test_a_broken_line_is_named(line, message, tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text(line_of(SETUP) + line + "\n")
    with pytest.raises(InvalidRecording, match=message):
        read_recording(path)


@pytest.mark.parametrize("schema", ["2", "null", '"1"'])
def test_another_schema_is_refused(schema, tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text(line_of(SETUP).replace(f'"schema":{SCHEMA}', f'"schema":{schema}'))
    with pytest.raises(InvalidRecording, match=f"line 1: schema is .*, this version reads {SCHEMA}"):
        read_recording(path)
