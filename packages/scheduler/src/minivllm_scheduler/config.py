"""SchedulerConfig: the limits that a scheduler works within."""

from dataclasses import dataclass

from minivllm_scheduler.errors import InvalidConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Limits of one scheduler.

    Attributes:
        max_num_seqs: Most requests running at once.
        max_num_batched_tokens: Token budget of one step, over all its rows. At least `max_num_seqs`, so that
            every running request gets a token in every step.
        max_model_len: Most tokens of one request, prompt and output.
        max_num_waiting: Most requests waiting beside those that `max_num_seqs` leaves room for; `add` refuses what
            goes beyond.
        watermark: Share of the pool's blocks that admitting a request leaves free, so that running requests
            can grow before one must be preempted. In [0, 1); ignored when nothing runs. The scheduler's
            default for admission.
        prefill_chunk_size: Most tokens of one row; None lets a row take the whole budget.
        max_overtaking: Requests that may be admitted in a row, for their better rank, while the one that was added
            first waits; then it is next. The bound on waiting under any order, at least 0.

    Raises:
        InvalidConfig: A value is outside its limits.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    max_num_waiting: int
    watermark: float = 0.01
    prefill_chunk_size: int | None = None
    max_overtaking: int = 256

    @property
    def max_num_requests(self) -> int:
        """Most requests at once, running and waiting."""
        return self.max_num_seqs + self.max_num_waiting

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_num_waiting"):
            _require_at_least(name, getattr(self, name), 1)
        _require_at_least("max_model_len", self.max_model_len, 2)
        _require_at_least("max_overtaking", self.max_overtaking, 0)
        if self.prefill_chunk_size is not None:
            _require_at_least("prefill_chunk_size", self.prefill_chunk_size, 1)
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise InvalidConfig(
                f"max_num_batched_tokens is {self.max_num_batched_tokens}, it must be at least max_num_seqs "
                f"{self.max_num_seqs}: a step serves every running request"
            )
        if not 0 <= self.watermark < 1:
            raise InvalidConfig(f"watermark is {self.watermark}, it must lie in [0, 1)")


def _require_at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise InvalidConfig(f"{name} is {value}, it must be at least {least}")
