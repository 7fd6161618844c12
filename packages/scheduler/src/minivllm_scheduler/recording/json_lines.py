"""Recordings as text: one event per line, each a JSON object.

    {"event":"setup","schema":1,"config":{"max_num_seqs":8,…},"num_blocks":64,"block_size":4,…}
    {"event":"added","now":0.0,"requests":[{"request_id":"a","prompt_token_ids":[5,6,7],"max_tokens":2,…}]}
    {"event":"pass_began","now":0.1}
    {"event":"scheduled","output":[0,[["a",0,3,[],true]],[["a",[5,6,7],3,[0],0]],[]]}
    {"event":"sampled","result":[0,[[8]]]}
    {"event":"aborted","now":0.2,"request_id":"a"}
    {"event":"failed","now":0.3}

The fields are those of the events; `SchedulerOutput`, its rows and `StepResult` are arrays in the order of their
fields. Times are seconds of the recorded run's clock. A change of any of this changes the schema number.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Final, TextIO, get_args

from minivllm_scheduler.errors import InvalidRecording
from minivllm_scheduler.recording.events import Event, Recording, Setup
from minivllm_scheduler.recording.typed_json import decode, encode

SCHEMA: Final = 1
"""Number of this format."""

_NAMES: Final = {
    kind: "".join(f"_{char.lower()}" if char.isupper() else char for char in kind.__name__)[1:]
    for kind in get_args(Event)
}
_KINDS: Final = {name: kind for kind, name in _NAMES.items()}


def line_of(event: Event) -> str:
    """An event as a line, its end included."""
    head = {"event": _NAMES[type(event)]} | ({"schema": SCHEMA} if isinstance(event, Setup) else {})
    return encode(head | {field.name: getattr(event, field.name) for field in fields(event)}) + "\n"


def line_writer(file: TextIO) -> Callable[[Event], object]:
    """What writes every event it is called with to `file`: the `record` of a RecordingScheduler."""
    return lambda event: file.write(line_of(event))


def write_recording(recording: Recording, path: Path | str) -> None:
    """Writes a whole recording."""
    with Path(path).open("w", encoding="utf-8") as file:
        file.writelines(line_of(event) for event in (recording.setup, *recording.events))


def read_recording(path: Path | str) -> Recording:
    """Reads what `write_recording` or a `line_writer` wrote.

    Raises:
        InvalidRecording: The message names the line, and where that helps the field and its value.
    """
    with Path(path).open(encoding="utf-8") as file:
        return Recording.of(_events(file))


def _events(lines: Iterable[str]) -> Iterator[Event]:
    for number, line in enumerate(lines, 1):
        place = f"line {number}"
        try:
            values = json.loads(line)
        except ValueError as error:
            raise InvalidRecording(f"{place} is not JSON: {error}") from error
        name = values.pop("event", None) if isinstance(values, dict) else None
        kind = _KINDS.get(name) if isinstance(name, str) else None
        if kind is None:
            raise InvalidRecording(f"{place} has no event of {', '.join(_KINDS)}: {line[:80].strip()!r}")
        if kind is Setup and (schema := values.pop("schema", None)) != SCHEMA:
            raise InvalidRecording(f"{place}: schema is {schema!r}, this version reads {SCHEMA}")
        yield decode(kind, values, place)
