"""Replay: the simulated engine on a recording's commands and sampled ids; no model, no clock, equal decisions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from minivllm_scheduler.errors import ReplayDiverged, SchedulerError
from minivllm_scheduler.output import RequestUpdate, SchedulerOutput, StepResult
from minivllm_scheduler.recording.events import (
    Aborted,
    Added,
    Event,
    Failed,
    PassBegan,
    Recording,
    Sampled,
    Setup,
)
from minivllm_scheduler.recording.policy_names import Policy, policies_of
from minivllm_scheduler.recording.recorder import RecordingScheduler
from minivllm_scheduler.simulation.simulated_engine import SimulatedEngine


def replay(
    recording: Recording,
    record: Callable[[Event], object],
    *,
    on_updates: Callable[[tuple[RequestUpdate, ...]], object] | None = None,
    **policies: Policy,
) -> None:
    """Gives a new scheduler the inputs of a recording, and records what it decides.

    The engine is built as for any simulation, from what the recording says of the recorded one. Outputs of
    `recording`, if it has any, are not looked at: compare them with the new ones.

    Args:
        recording: Commands by pass and sampled ids.
        record: Called with every event of the new run.
        on_updates: Called with the new output ids of every pass.
        policies: `order`, `victim` and so on, in place of those that the recording names.

    Raises:
        InvalidRecording: It names a policy that this package does not have.
        ReplayDiverged: The scheduler decided differently, so that a command or result does not fit any more.
    """
    for updates in _Replay(recording, record, policies).passes():
        if on_updates is not None:
            on_updates(updates)


def recorded_engine(setup: Setup, policies: Mapping[str, Policy] | None = None) -> SimulatedEngine:
    """The engine of a recording, for the simulator.

    Args:
        setup: What the recording says of it.
        policies: By role, in place of those that the recording names.

    Raises:
        InvalidRecording: It names a policy that this package does not have.
    """
    chosen: Mapping[str, Any] = policies_of(setup.policies, policies or {})
    return SimulatedEngine(
        config=setup.config,
        num_blocks=setup.num_blocks,
        block_size=setup.block_size,
        prefix_caching=setup.prefix_caching,
        run_ahead=setup.run_ahead,
        **chosen,
    )


class _NoResult(Exception):
    """The step loop asks for a result where the recording has none."""


class _RecordedResults:
    """An executor that computes nothing: it returns the result recorded for the pass."""

    def __init__(self) -> None:
        self.due: StepResult | None = None

    def launch(self, output: SchedulerOutput) -> None:
        """Nothing to start."""

    def result(self) -> StepResult:
        """The recorded result of this pass."""
        result, self.due = self.due, None
        if result is None:
            raise _NoResult
        return result


class _Replay:
    def __init__(
        self, recording: Recording, record: Callable[[Event], object], policies: dict[str, Policy]
    ) -> None:
        engine = recorded_engine(recording.setup, policies)
        build = partial(RecordingScheduler, run_ahead=engine.run_ahead, record=record)
        self._scheduler = engine.make_scheduler(engine.make_kv(), build)
        self._results = _RecordedResults()
        self._loop = engine.make_loop(self._scheduler, self._results)
        self._inputs: Sequence[Event] = recording.without_outputs().events

    def passes(self) -> Iterator[tuple[RequestUpdate, ...]]:
        """Does what was recorded; yields the updates of each pass."""
        num_passes = 0
        for index, event in enumerate(self._inputs):
            try:
                if isinstance(event, PassBegan):
                    yield self._pass(event.now, self._inputs[index + 1 : index + 2])
                    num_passes += 1
                else:
                    self._command(event)
            except SchedulerError as error:
                place = "" if isinstance(event, PassBegan) else f"{type(event).__name__} before "
                raise ReplayDiverged(f"{place}pass {num_passes}: {error}") from error

    def _command(self, event: Event) -> None:
        match event:
            case Added(now, requests):
                self._scheduler.add(requests, now)
            case Aborted(now, request_id):
                if not self._scheduler.abort(request_id, now):
                    raise ReplayDiverged(f"request {request_id!r} has ended, in the recording it had not")
            case Failed(now):
                self._loop.fail(now)

    def _pass(self, now: float, following: Sequence[Event]) -> tuple[RequestUpdate, ...]:
        """One pass of the step loop, whose result follows in the recording if it took one in."""
        match following:
            case [Sampled(result)]:
                self._results.due = result
        updates: tuple[RequestUpdate, ...] = ()
        try:
            updates = self._loop.step(now)
        except _NoResult:
            # A fault of the recorded executor, or the end of a recording that was cut off.
            if following and not isinstance(following[0], Failed):
                raise ReplayDiverged("it asks for a result, the recording has none here") from None
        if self._results.due is not None:
            step_id = self._results.due.step_id
            raise ReplayDiverged(f"it does not ask for the recorded result of step {step_id}")
        return updates
