"""Reads and writes the two formats of traces; `trace.py` says what stands in them."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, TextIO, TypeVar

from minivllm_scheduler.simulation.errors import InvalidTrace
from minivllm_scheduler.simulation.trace import (
    OPTIONAL_FIELDS,
    REQUIRED_FIELDS,
    Trace,
    TraceRow,
    check_trace_row,
)

FIELDS: Final = (*REQUIRED_FIELDS, *OPTIONAL_FIELDS)
MAX_DIGITS: Final = 18
"""Of an integer in a CSV file: far more than any limit, few enough to parse and print."""

T = TypeVar("T")
_Record = Mapping[str, object]
_Located = Iterator[tuple[str, _Record]]  # where a record stands, and the record


def read_trace(path: Path | str) -> Trace:
    """Reads a `.csv` or `.jsonl` file.

    Raises:
        InvalidTrace: naming line, field and value of the first thing that is wrong.
        OSError: The file cannot be read.
    """
    path = Path(path)
    records = _of_format(path, {".csv": _csv_records, ".jsonl": _jsonl_records})
    rows: list[TraceRow] = []
    previous_s = 0.0
    with path.open("rb") as file:
        for where, record in records(_decoded(file)):
            row = _to_row(record, where)
            check_trace_row(row, previous_s, where)
            previous_s = row.arrival_time_s
            rows.append(row)
    if not rows:
        raise InvalidTrace(str(path), None, "without requests", "a trace of at least 1 request")
    return Trace(tuple(rows))


def write_trace(path: Path | str, trace: Trace) -> None:
    """Writes a `.csv` or `.jsonl` file that `read_trace` reads back as an equal trace.

    Raises:
        InvalidTrace: The file's name ends otherwise.
        OSError: The file cannot be written.
    """
    path = Path(path)
    write = _of_format(path, {".csv": _write_csv, ".jsonl": _write_jsonl})
    with path.open("w", encoding="utf-8", newline="") as file:
        write(file, trace)


def _of_format(path: Path, by_suffix: Mapping[str, T]) -> T:
    found = by_suffix.get(path.suffix.lower())
    if found is None:
        raise InvalidTrace(str(path), "the file's ending", path.suffix, " or ".join(by_suffix))
    return found


def _decoded(lines: Iterable[bytes]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InvalidTrace(f"line {number}", None, line, "UTF-8 text") from error


def _csv_records(lines: Iterable[str]) -> _Located:
    reader = csv.reader(lines, strict=True)
    columns: list[str] | None = None
    try:
        for cells in reader:
            where = f"line {reader.line_num}"
            if columns is None:
                columns = [cell.strip() for cell in cells]
                _check_fields(columns, where)
            elif len(cells) != len(columns):
                raise InvalidTrace(where, None, ",".join(cells), f"{len(columns)} values, one per column")
            else:
                yield (
                    where,
                    {name: _parse_cell(name, cell) for name, cell in zip(columns, cells, strict=True)},
                )
    except csv.Error as error:
        raise InvalidTrace(f"line {reader.line_num}", None, str(error), "CSV") from error


def _parse_cell(field: str, cell: str) -> object:
    """An empty cell stands for nothing; what is no number stays text, for the checks to refuse."""
    if field == "prefix_group":
        return cell or None
    number = cell.strip()
    digits = number.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS:
        return int(number)
    try:
        return float(number)
    except ValueError:
        return cell or None


def _jsonl_records(lines: Iterable[str]) -> _Located:
    for number, line in enumerate(lines, 1):
        where = f"line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidTrace(where, None, line.rstrip("\r\n"), "a JSON object") from error
        if not isinstance(record, dict):
            raise InvalidTrace(where, None, record, "a JSON object")
        _check_fields(record, where)
        yield where, record


def _check_fields(names: Iterable[str], where: str) -> None:
    """Checks that every required field is there and no unknown or repeated one."""
    seen: set[str] = set()
    for name in names:
        if name not in FIELDS or name in seen:
            raise InvalidTrace(where, "a field", name, f"one of {', '.join(FIELDS)}, each at most once")
        seen.add(name)
    for name in REQUIRED_FIELDS:
        if name not in seen:
            raise InvalidTrace(where, name, None, "present")


def _to_row(record: _Record, where: str) -> TraceRow:
    group = record.get("prefix_group")
    if group is not None and (isinstance(group, bool) or not isinstance(group, str | int)):
        raise InvalidTrace(where, "prefix_group", group, "a name or an integer")
    prompt_tokens = _integer(record, "prompt_tokens", where)
    absent = record.get("prefix_tokens") is None
    prefix_tokens = 0 if absent else _integer(record, "prefix_tokens", where)
    return TraceRow(
        _seconds(record, where),
        prompt_tokens,
        _integer(record, "output_tokens", where),
        None if group is None else str(group),
        prompt_tokens if absent and group is not None else prefix_tokens,
    )


def _integer(record: _Record, field: str, where: str) -> int:
    value = record[field]
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidTrace(where, field, value, "an integer")
    return value


def _seconds(record: _Record, where: str) -> float:
    value = record["arrival_time_s"]
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidTrace(where, "arrival_time_s", value, "a number of seconds")
    return value


def _write_csv(file: TextIO, trace: Trace) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(FIELDS)
    writer.writerows(_present(row).values() for row in trace.rows)


def _write_jsonl(file: TextIO, trace: Trace) -> None:
    for row in trace.rows:
        record = {name: value for name, value in _present(row).items() if value is not None}
        file.write(json.dumps(record) + "\n")


def _present(row: TraceRow) -> dict[str, object]:
    """The row with None for what it does not have."""
    return row._asdict() | ({"prefix_tokens": None} if row.prefix_group is None else {})
