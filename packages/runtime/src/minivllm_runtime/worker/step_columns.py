"""The rows of a step turned on their side: a column is read at the speed of C, a row at that of Python."""

from collections.abc import Sequence
from typing import NamedTuple

from minivllm_scheduler import ScheduledRequest


class StepColumns(NamedTuple):
    """The fields of ScheduledRequest, each for all R rows of a step."""

    request_ids: tuple[str, ...]
    starts: tuple[int, ...]
    nums_tokens: tuple[int, ...]
    new_block_ids: tuple[tuple[int, ...], ...]
    samples: tuple[bool, ...]

    @classmethod
    def of(cls, rows: Sequence[ScheduledRequest]) -> "StepColumns":
        """The columns of at least one row."""
        return cls(*zip(*rows, strict=True))

    @property
    def num_tokens(self) -> int:
        """Tokens of all rows."""
        return sum(self.nums_tokens)

    @property
    def are_decodes(self) -> bool:
        """Whether every row computes one token."""
        return self.nums_tokens.count(1) == len(self.nums_tokens)
