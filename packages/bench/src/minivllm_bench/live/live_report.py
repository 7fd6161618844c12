"""What a workload found that was served for real."""

from dataclasses import dataclass

from minivllm_scheduler.simulation import Distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReport:
    """Figures of one workload served for real; names and meanings are those of `SimulationReport`.

    Attributes:
        num_finished: Requests that got all their tokens.
        duration_s: From the start to the last token.
        output_tokens_per_s: Output tokens over `duration_s`.
        ttft_s: From the time at which the workload says that a request arrives to its first token.
        tpot_s: Time per output token after the first, mean of a request; None if all had one token.
        latency_s: From the arrival to the last token.
    """

    num_finished: int
    duration_s: float
    output_tokens_per_s: float
    ttft_s: Distribution | None
    tpot_s: Distribution | None
    latency_s: Distribution | None
