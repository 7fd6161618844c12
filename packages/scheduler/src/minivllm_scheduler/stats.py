"""SchedulerStats: numbers for metrics and tests."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerStats:
    """A scheduler at one moment. Totals count from its creation and never decrease.

    Attributes:
        num_running: Requests holding KV blocks now.
        num_waiting: Requests waiting now: new, preempted, and siblings that wait for their leader's prompt.
        num_in_flight: Steps scheduled and not yet updated.
        oldest_wait_s: Time from the arrival of the longest-known waiting request to the scheduler's last
            call; 0 when none waits.
        total_steps: Steps scheduled.
        total_scheduled_tokens: Tokens in all their rows.
        total_preempted: Times a running request lost its blocks to another.
        total_policy_faults: Times a policy raised or answered nonsense, and the scheduler's default took its
            place.
    """

    num_running: int
    num_waiting: int
    num_in_flight: int
    oldest_wait_s: float
    total_steps: int
    total_scheduled_tokens: int
    total_preempted: int
    total_policy_faults: int
