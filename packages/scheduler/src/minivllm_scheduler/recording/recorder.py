"""RecordingScheduler: a scheduler that tells everything that is done to it and everything it decides."""

from collections.abc import Callable, Sequence

from minivllm_kvcache import KVCacheManager
from minivllm_scheduler.config import SchedulerConfig
from minivllm_scheduler.output import RequestUpdate, SchedulerOutput, StepResult
from minivllm_scheduler.policy import FCFS, LIFO
from minivllm_scheduler.recording.events import (
    Aborted,
    Added,
    Event,
    Failed,
    PassBegan,
    Sampled,
    Scheduled,
    Setup,
)
from minivllm_scheduler.recording.policy_names import Policy, name_of
from minivllm_scheduler.request import Request
from minivllm_scheduler.scheduler import Scheduler


class RecordingScheduler(Scheduler):
    """A `Scheduler` driven by a `StepLoop`, and recorded.

    Args:
        config: Limits.
        kv: Block tables and prefix cache; still empty.
        run_ahead: As the step loop has it.
        record: Called with the setup at once, then with every event when it happens.
        policies: Those of `Scheduler`; they are recorded by name, its defaults for order and victim too.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        kv: KVCacheManager,
        *,
        run_ahead: bool,
        record: Callable[[Event], object],
        **policies: Policy | None,
    ) -> None:
        used: dict[str, Policy] = {"order": FCFS, "victim": LIFO}
        used |= {role: policy for role, policy in policies.items() if policy is not None}
        super().__init__(config, kv, **used)
        self._record = record
        record(
            Setup(
                config=config,
                num_blocks=kv.num_blocks,
                block_size=kv.block_size,
                prefix_caching=kv.prefix_caching,
                run_ahead=run_ahead,
                policies={role: name_of(policy) for role, policy in used.items()},
            )
        )

    def add(self, requests: Sequence[Request], now: float) -> None:
        """See `Scheduler.add`."""
        super().add(requests, now)
        self._record(Added(now, tuple(requests)))

    def abort(self, request_id: str, now: float) -> bool:
        """See `Scheduler.abort`."""
        accepted = super().abort(request_id, now)
        if accepted:
            self._record(Aborted(now, request_id))
        return accepted

    def schedule(self, now: float) -> SchedulerOutput | None:
        """See `Scheduler.schedule`."""
        self._record(PassBegan(now))
        output = super().schedule(now)
        if output is not None:
            self._record(Scheduled(_frozen(output)))
        return output

    def update(self, result: StepResult, now: float) -> tuple[RequestUpdate, ...]:
        """See `Scheduler.update`."""
        updates = super().update(result, now)
        self._record(Sampled(result))
        return updates

    def fail(self, now: float) -> tuple[str, ...]:
        """See `Scheduler.fail`."""
        self._record(Failed(now))
        return super().fail(now)


def _frozen(output: SchedulerOutput) -> SchedulerOutput:
    """The same step with its ids in tuples, so that a recording read from a file is equal to the recorded one."""
    admitted = tuple(each._replace(token_ids=tuple(each.token_ids)) for each in output.admitted)
    return output._replace(admitted=admitted)
