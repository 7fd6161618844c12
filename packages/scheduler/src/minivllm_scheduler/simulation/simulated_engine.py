"""SimulatedEngine: one description of an engine, from which simulations and replays build the same parts."""

from collections.abc import Callable
from dataclasses import dataclass

from minivllm_kvcache import KVCacheManager
from minivllm_scheduler.config import SchedulerConfig
from minivllm_scheduler.policy import FCFS, LIFO, AdmissionPolicy, VictimPolicy, WaitingOrder
from minivllm_scheduler.scheduler import Scheduler
from minivllm_scheduler.simulation.errors import InvalidCost, require_at_least
from minivllm_scheduler.step_loop import Executor, StepLoop


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedEngine:
    """The engine to simulate: what an engine's scheduler and step loop are built from.

    A policy that keeps state, as a fair share does, serves one simulation: the next one needs a new one.

    Attributes:
        config: Limits of its scheduler.
        num_blocks: KV blocks in its pool.
        block_size: Tokens per block.
        prefix_caching: Whether equal prefixes are computed once.
        order: Who waits in front.
        victim: Who is preempted.
        admission: How much room an admission must leave; None for the watermark of `config`.
        run_ahead: Whether the next step is scheduled while one is on the device.
        host_s: Seconds of host work per step, on top of what the cost model says of the device.

    Raises:
        InvalidCost: `host_s` is negative or not finite.
    """

    config: SchedulerConfig
    num_blocks: int
    block_size: int = 16
    prefix_caching: bool = True
    order: WaitingOrder = FCFS
    victim: VictimPolicy = LIFO
    admission: AdmissionPolicy | None = None
    run_ahead: bool = False
    host_s: float = 0.0

    def __post_init__(self) -> None:
        require_at_least("host_s", self.host_s, 0, InvalidCost)

    def make_scheduler(self, kv: KVCacheManager, build: Callable[..., Scheduler] = Scheduler) -> Scheduler:
        """Its scheduler, over a new `kv` of `make_kv`; `build` is called as `Scheduler` is."""
        return build(self.config, kv, order=self.order, victim=self.victim, admission=self.admission)

    def make_kv(self) -> KVCacheManager:
        """Its KV cache, empty."""
        return KVCacheManager(self.num_blocks, self.block_size, prefix_caching=self.prefix_caching)

    def make_loop(self, scheduler: Scheduler, executor: Executor) -> StepLoop:
        """Its step loop."""
        return StepLoop(scheduler, executor, run_ahead=self.run_ahead)
