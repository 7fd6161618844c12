"""How long a step takes: what is known of a step, the protocol of cost models, and the simplest of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from minivllm_scheduler.output import ScheduledRequest
from minivllm_scheduler.simulation.errors import InvalidCost, require_at_least


class StepLoad(NamedTuple):
    """The work in one step, summed over its rows.

    Attributes:
        num_rows: Requests in the step.
        num_tokens: Tokens computed.
        num_samples: Rows that sample.
        num_context_tokens: Tokens whose KV is read: each row's last position + 1.
        num_attention_pairs: Pairs of a computed token and a position that it attends to, itself included.
    """

    num_rows: int
    num_tokens: int
    num_samples: int
    num_context_tokens: int
    num_attention_pairs: int

    @classmethod
    def of(cls, rows: Sequence[ScheduledRequest]) -> "StepLoad":
        """The load of a step's rows."""
        num_tokens = num_samples = num_context_tokens = num_attention_pairs = 0
        for _, start, count, _, samples in rows:
            num_tokens += count
            num_samples += samples
            num_context_tokens += start + count
            num_attention_pairs += count * start + count * (count + 1) // 2
        return cls(len(rows), num_tokens, num_samples, num_context_tokens, num_attention_pairs)


class CostModel(Protocol):
    """Predicts how long a device is busy with a step."""

    def step_s(self, load: StepLoad) -> float:
        """Seconds, finite and not negative."""


@dataclass(frozen=True, slots=True)
class ConstantCost:
    """Every step takes the same time.

    Raises:
        InvalidCost: `seconds` is negative or not finite.
    """

    seconds: float

    def __post_init__(self) -> None:
        require_at_least("seconds", self.seconds, 0, InvalidCost)

    def step_s(self, load: StepLoad) -> float:  # noqa: ARG002 - every load costs the same
        """Seconds of a step."""
        return self.seconds
