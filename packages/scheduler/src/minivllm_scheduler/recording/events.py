"""What happens to a scheduler, in order: the events of a recording."""

from collections.abc import Iterable
from dataclasses import dataclass

from minivllm_scheduler.config import SchedulerConfig
from minivllm_scheduler.errors import InvalidRecording
from minivllm_scheduler.output import SchedulerOutput, StepResult
from minivllm_scheduler.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Input: what the scheduler and its step loop were built from. The first event, and there only.

    Attributes:
        config: Limits.
        num_blocks, block_size, prefix_caching: Of the KV cache, which was empty.
        run_ahead: Of the step loop.
        policies: Name of each strategy that the scheduler was given, by its parameter ("order", "victim", …).
    """

    config: SchedulerConfig
    num_blocks: int
    block_size: int
    prefix_caching: bool
    run_ahead: bool
    policies: dict[str, str]


@dataclass(frozen=True, slots=True)
class Added:
    """Input: requests were accepted together. What `add` refuses changes nothing and is not recorded."""

    now: float
    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class Aborted:
    """Input: a live request was aborted."""

    now: float
    request_id: str


@dataclass(frozen=True, slots=True)
class PassBegan:
    """Input: the step loop asked for the next step. Commands before it are those of this pass."""

    now: float


@dataclass(frozen=True, slots=True)
class Scheduled:
    """Output: the step that the pass got. A pass that got none has no such event."""

    output: SchedulerOutput


@dataclass(frozen=True, slots=True)
class Sampled:
    """Input: the result that the pass took in. A pass that only fills the pipeline has no such event."""

    result: StepResult


@dataclass(frozen=True, slots=True)
class Failed:
    """Input: an exception of the executor ended the requests of the steps in flight."""

    now: float


Event = Setup | Added | Aborted | PassBegan | Scheduled | Sampled | Failed


@dataclass(frozen=True, slots=True)
class Recording:
    """A run of a scheduler from its start.

    Attributes:
        setup: How it was built.
        events: What came after that, in order.
    """

    setup: Setup
    events: tuple[Event, ...]

    @classmethod
    def of(cls, events: Iterable[Event]) -> "Recording":
        """A recording of events as they were emitted, the setup first.

        Raises:
            InvalidRecording: The first event is no setup, or another one is.
        """
        given = [*events]
        if not given or not isinstance(given[0], Setup):
            raise InvalidRecording(f"a recording begins with its setup, this one with {given[:1]!r}")
        for number, event in enumerate(given[1:], 1):
            if isinstance(event, Setup):
                raise InvalidRecording(f"event {number} is a second setup, a recording has one")
        return cls(given[0], tuple(given[1:]))

    def without_outputs(self) -> "Recording":
        """Only what the scheduler was given: commands by pass and sampled ids."""
        return Recording(
            self.setup, tuple(event for event in self.events if not isinstance(event, Scheduled))
        )

    def outputs(self) -> tuple[tuple[int, SchedulerOutput], ...]:
        """Only what it decided: (index of the pass, step), passes counted from 0."""
        steps = []
        index = -1
        for event in self.events:
            if isinstance(event, PassBegan):
                index += 1
            elif isinstance(event, Scheduled):
                steps.append((index, event.output))
        return tuple(steps)
