"""What a simulation found: SimulationReport and the distributions in it."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from minivllm_scheduler.simulation.percentile import percentile


@dataclass(frozen=True, slots=True)
class Distribution:
    """Some durations in short, in seconds; percentiles as `percentile` defines them."""

    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    max_s: float

    @classmethod
    def of(cls, seconds: Iterable[float]) -> "Distribution | None":
        """The distribution of `seconds`; None if there are none."""
        values = array("d", sorted(seconds))
        if not values:
            return None
        return cls(
            sum(values) / len(values),
            percentile(values, 50),
            percentile(values, 95),
            percentile(values, 99),
            values[-1],
        )


class KVUse(NamedTuple):
    """Blocks held by requests from a moment on.

    Attributes:
        time_s: Seconds since the start of the simulation.
        in_use_blocks: Blocks that some request holds; cached ones that nobody holds are free.
    """

    time_s: float
    in_use_blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassReport:
    """What the requests of one tenant and priority got; see `SimulationReport`."""

    tenant: str
    priority: int
    num_finished: int
    num_output_tokens: int
    ttft_s: Distribution | None
    queue_s: Distribution | None
    latency_s: Distribution | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationReport:
    """Figures of one simulation. Distributions are None where no request has such a time.

    Attributes:
        num_finished: Requests that got all their tokens.
        num_refused: Requests that the scheduler did not accept: too large for ever, or the queue was full.
        duration_s: Until the last token.
        num_steps: Steps.
        num_rows: Rows of all steps: what the work of the simulator grows with.
        num_computed_tokens: Tokens of all rows, recomputed ones included.
        num_prompt_tokens: Prompt tokens of the finished requests.
        num_output_tokens: Output tokens of the finished requests.
        num_cached_tokens: Prompt tokens that the prefix cache supplied to them at their first admission.
        num_preemptions: Times that a request lost its blocks.
        num_recomputed_tokens: Tokens that were computed once more because of that.
        num_discarded_tokens: Tokens computed one step ahead for requests that a stop id had ended.
        num_policy_faults: Times a policy raised or answered nonsense. With any, the figures are in part those of
            the scheduler's defaults.
        requests_per_s: `num_finished` over `duration_s`; 0 if that is 0.
        output_tokens_per_s: `num_output_tokens` over `duration_s`; 0 if that is 0.
        ttft_s: Time to first token: from arrival to the end of the step that sampled it.
        tpot_s: Time per output token after the first, mean of a request; those of one token have none.
        queue_s: From arrival to the launch of the first step with the request in it.
        latency_s: From arrival to the last token.
        num_blocks: Size of the pool.
        kv_use_mean: Share of the pool in use, averaged over time.
        kv_use_peak: Largest share of the pool in use.
        kv_use: Blocks in use over time; thinned out evenly to at most 1,024 moments.
        classes: The same by tenant and priority, in their order.
    """

    num_finished: int
    num_refused: int
    duration_s: float
    num_steps: int
    num_rows: int
    num_computed_tokens: int
    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int
    num_preemptions: int
    num_recomputed_tokens: int
    num_discarded_tokens: int
    num_policy_faults: int
    requests_per_s: float
    output_tokens_per_s: float
    ttft_s: Distribution | None
    tpot_s: Distribution | None
    queue_s: Distribution | None
    latency_s: Distribution | None
    num_blocks: int
    kv_use_mean: float
    kv_use_peak: float
    kv_use: tuple[KVUse, ...]
    classes: tuple[ClassReport, ...]
