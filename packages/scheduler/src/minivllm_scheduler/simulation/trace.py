"""Traces: recorded requests, one a line, in CSV or JSON Lines.

======================  ==================================================================================
``arrival_time_s``      seconds since the start; no line is earlier than the one before it
``prompt_tokens``       length of the prompt
``output_tokens``       length of the answer
``prefix_group``        optional: requests of one group begin with the same tokens
``prefix_tokens``       optional: how many; the whole prompt if the group is given without it
======================  ==================================================================================

A CSV file names its columns in the first line, in any order. A JSON Lines file has one object a line.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from minivllm_scheduler.request import Request
from minivllm_scheduler.simulation.errors import InvalidTrace
from minivllm_scheduler.simulation.lengths import MAX_LENGTH_TOKENS
from minivllm_scheduler.simulation.traffic import FreshTokenIds, TimedRequest


class TraceRow(NamedTuple):
    """One request of a trace.

    Attributes:
        arrival_time_s: Seconds since the start.
        prompt_tokens: Length of the prompt, shared prefix included.
        output_tokens: Length of the answer.
        prefix_group: Requests of one group begin with the same tokens; None: with tokens of its own. A name of
            printable characters.
        prefix_tokens: How many tokens are the group's, at most `prompt_tokens`; 0 without a group.
    """

    arrival_time_s: float
    prompt_tokens: int
    output_tokens: int
    prefix_group: str | None = None
    prefix_tokens: int = 0


REQUIRED_FIELDS: Final = ("arrival_time_s", "prompt_tokens", "output_tokens")
MAX_TIME_S: Final = 1e12
OPTIONAL_FIELDS: Final = ("prefix_group", "prefix_tokens")


def check_trace_row(row: TraceRow, previous_s: float, where: str) -> None:
    """Checks a row that follows one at `previous_s`.

    Args:
        row: The row.
        previous_s: Arrival time of the row before it; 0 for the first.
        where: The row's place, for the message.

    Raises:
        InvalidTrace: naming place, field, value and limit.
    """
    if not previous_s <= row.arrival_time_s <= MAX_TIME_S:
        expected = f"in [{previous_s}, {MAX_TIME_S:g}]: a trace is in order of time"
        raise InvalidTrace(where, "arrival_time_s", row.arrival_time_s, expected)
    for field in ("prompt_tokens", "output_tokens"):
        if not 1 <= getattr(row, field) <= MAX_LENGTH_TOKENS:
            raise InvalidTrace(where, field, getattr(row, field), f"in [1, {MAX_LENGTH_TOKENS}]")
    if row.prefix_group is not None and not (row.prefix_group and row.prefix_group.isprintable()):
        raise InvalidTrace(
            where, "prefix_group", row.prefix_group, "a name of printable characters, or absent"
        )
    if row.prefix_group is None and row.prefix_tokens != 0:
        raise InvalidTrace(where, "prefix_tokens", row.prefix_tokens, "absent without a prefix_group")
    if row.prefix_group is not None and not 1 <= row.prefix_tokens <= row.prompt_tokens:
        expected = f"in [1, {row.prompt_tokens}], the prompt's length"
        raise InvalidTrace(where, "prefix_tokens", row.prefix_tokens, expected)


@dataclass(frozen=True, slots=True)
class Trace:
    """A workload that was recorded: each request arrives when its row says.

    Attributes:
        rows: In order of time.

    Raises:
        InvalidTrace: A row is out of order or has a number outside its limits.
    """

    rows: Sequence[TraceRow]

    def __post_init__(self) -> None:
        previous_s = 0.0
        for number, row in enumerate(self.rows, 1):
            check_trace_row(row, previous_s, f"row {number}")
            previous_s = row.arrival_time_s

    @property
    def num_requests(self) -> int:
        """Rows."""
        return len(self.rows)

    def start(self) -> "TraceTraffic":
        """The requests, from the beginning."""
        return TraceTraffic(self.rows)


class TraceTraffic:
    """One run of a `Trace`."""

    def __init__(self, rows: Sequence[TraceRow]) -> None:
        self._rows = rows
        self._ids = FreshTokenIds()
        lengths: dict[str, int] = {}
        for row in rows:
            if row.prefix_group is not None:
                lengths[row.prefix_group] = max(lengths.get(row.prefix_group, 0), row.prefix_tokens)
        self._prefixes = {group: self._ids.take(length) for group, length in lengths.items()}

    def arrivals(self) -> Iterator[TimedRequest]:
        """The request of each row."""
        for number, row in enumerate(self._rows):
            own = self._ids.take(row.prompt_tokens - row.prefix_tokens)
            prompt: Sequence[int] = own
            if row.prefix_group is not None:
                prefix = self._prefixes[row.prefix_group][: row.prefix_tokens]
                prompt = (*prefix, *own)
            request = Request(request_id=str(number), prompt_token_ids=prompt, max_tokens=row.output_tokens)
            yield TimedRequest(row.arrival_time_s, request)

    def follow_up(self, request: Request, now_s: float) -> None:  # noqa: ARG002 - a trace does not react
        """Nothing: a trace goes on whatever the engine does."""
        return
